// Each tab of a report shows the numbers of its view; nothing is said in the console; nothing of a trace becomes markup.
import assert from "node:assert/strict";
import { mkdirSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import {
    assertClean,
    browser,
    chooseTrace,
    finish,
    logs,
    openPage,
    openTab,
    report,
    shots,
    shown,
    tableRows,
    tabText,
    test,
    TRACES,
    view,
    WEB_WORK,
} from "./help.mjs";

const REAL = join(TRACES, "num_workers_0");
const SYNTHETIC = join(TRACES, "synthetic");
const same = (left, right) => assert.deepEqual(left, right);
const sortedRows = (rows) => rows.map((row) => JSON.stringify(row)).sort();

// ---- A real PyTorch trace, and a second one to compare with
const pair = logs("pair", ["num_workers_0", "num_workers_4"]);
const real = await openPage(`file://${report(pair, "pair.html")}`);

await test("overview shows steps, breakdown, device metrics and advice", async () => {
    await openTab(real, "overview");
    const overview = view("overview", REAL);
    const text = await tabText(real, "overview");
    for (const row of overview.performance[0].children) {
        assert.ok(
            text.includes(`${row.name}\t${shown(row.value)}\t${shown(row.extra)}`),
            `breakdown has ${row.name} ${row.value}`,
        );
    }
    for (const row of overview.gpu_metrics.data) if (row.value) assert.ok(text.includes(row.value), `metric ${row.title}`);
    const rows = await tableRows(real, "overview");
    const values = overview.steps.columns.map((column, c) => (column.role ? -1 : c)).filter((c) => c >= 0);
    same(
        rows.map((row) => row.slice(0, -1)),
        overview.steps.rows.map((row) => values.map((c) => shown(row[c]))),
    );
    const advice = await real.locator("#panel-overview .advice").innerText();
    const plain = overview.recommendations.replace(/<[^>]*>/g, "");
    assert.equal(advice.replace(/\s+/g, ""), plain.replace(/\s+/g, ""));
    assert.ok((await real.locator("#panel-overview canvas").count()) >= 2, "charts are drawn");
    const links = await real.locator("#panel-overview .advice a").evaluateAll((all) => all.map((a) => a.href));
    assert.ok(links.length > 0 && links.every((href) => href.startsWith("https://")));
});

await test("operators by name and by shape equal their tables", async () => {
    await openTab(real, "operators");
    for (const [choice, name] of [
        ["name", "operation_table"],
        ["shape", "operation_table_by_shape"],
    ]) {
        await real.selectOption("#operator-group", choice);
        const table = view(name, REAL);
        const keys = Object.keys(table.data[0]).filter((key) => key !== "has_call_stack");
        await real.waitForFunction(
            (n) => document.querySelector("#panel-operators .count").textContent === `${n} rows`,
            shown(table.data.length),
        );
        same(
            await tableRows(real, "operators"),
            table.data.map((row) => keys.map((key) => shown(row[key]))),
        );
    }
    await real.selectOption("#operator-group", "name");
    const pies = view("operation", REAL);
    await real.selectOption("#operator-charts", "total");
    await real.waitForFunction(() => document.querySelector("#panel-operators .grid").innerText.includes("Device Total Time"));
    const text = await real.locator("#panel-operators .grid").innerText();
    for (const [name, value] of pies.device_total_time.rows.slice(0, 8))
        assert.ok(text.includes(name) && text.includes(`${shown(value)} us`));
});

await test("a call stack opens below its operator", async () => {
    const stacks = view("operation_stack", REAL);
    const name = Object.keys(stacks)[0];
    await real.fill("#panel-operators input[type=search]", name);
    const title = real.locator("#panel-operators tbody td[title]").filter({ has: real.locator("button.twist") });
    const at = (await title.evaluateAll((cells) => cells.map((cell) => cell.title))).indexOf(name);
    await title.nth(at).locator("button.twist").click();
    const detail = real.locator("#panel-operators td.detail").first();
    await detail.locator("ol").first().waitFor();
    assert.ok((await detail.innerText()).includes(stacks[name].data[0].call_stack.split(";")[0]));
    await real.fill("#panel-operators input[type=search]", "");
});

await test("kernels, alone and by operator, equal their tables", async () => {
    await openTab(real, "kernels");
    for (const name of ["kernel_table", "kernel_table_by_op"]) {
        await real.selectOption("#kernel-group", name);
        const table = view(name, REAL);
        await real.waitForFunction(
            (n) => document.querySelector("#panel-kernels .count").textContent === `${n} rows`,
            shown(table.data.rows.length),
        );
        same(sortedRows(await tableRows(real, "kernels")), sortedRows(table.data.rows.map((row) => row.map(shown))));
    }
});

await test("tables sort both ways and filter", async () => {
    await real.selectOption("#kernel-group", "kernel_table");
    await real.waitForFunction(() => document.querySelectorAll("#panel-kernels thead th").length === 9);
    const header = real.locator("#panel-kernels th", { hasText: "Calls" });
    const calls = async () => (await tableRows(real, "kernels")).map((row) => Number(row[2].replace(/,/g, "")));
    await header.locator("button").click();
    const down = await calls();
    same(
        down,
        [...down].sort((a, b) => b - a),
    );
    assert.equal(await header.getAttribute("aria-sort"), "descending");
    await header.locator("button").press("Enter");
    same(
        await calls(),
        [...down].sort((a, b) => a - b),
    );
    await real.fill("#panel-kernels input[type=search]", "SGEMM nn");
    const found = await tableRows(real, "kernels");
    assert.ok(found.length > 0 && found.length < down.length);
    assert.ok(found.every((row) => /sgemm/i.test(row[0]) && /nn/i.test(row[0])));
    assert.equal(await real.locator("#panel-kernels .count").innerText(), `${found.length} of ${down.length} rows`);
    await real.fill("#panel-kernels input[type=search]", "no such kernel");
    assert.ok((await tabText(real, "kernels")).includes("Nothing here."));
    await real.fill("#panel-kernels input[type=search]", "");
});

await test("a table is copied as CSV", async () => {
    await real.evaluate(() => {
        Object.defineProperty(navigator, "clipboard", {
            configurable: true,
            value: {
                writeText: async (text) => {
                    window.copied = text;
                },
            },
        });
    });
    await real.locator("#panel-kernels .table button", { hasText: "Copy CSV" }).click();
    const text = await real.evaluate(() => window.copied);
    const lines = text.trim().split("\r\n");
    assert.equal(lines.length, view("kernel_table", REAL).data.rows.length + 1);
    assert.ok(lines[0].startsWith("Name,Tensor Cores Used,Calls"));
});

await test("a trace without modules, collectives or a roofline says so", async () => {
    for (const tab of ["modules", "distributed", "roofline"]) {
        await openTab(real, tab);
        assert.match(await tabText(real, tab), /no .* view/);
    }
});

await test("diff puts the largest change first and shows both sides", async () => {
    await openTab(real, "diff");
    const diff = view("diff", REAL, "--against", join(TRACES, "num_workers_4"));
    const rows = await tableRows(real, "diff");
    const number = (text) => Number(text.replace("−", "-").replace(/[+,]/g, ""));
    const changes = rows.map((row) => Math.abs(number(row[5])));
    same(
        changes,
        [...changes].sort((a, b) => b - a),
    );
    const right = new Map(diff.right.aggs.map((agg) => [agg.name, agg]));
    for (const agg of diff.left.aggs) {
        const row = rows.find((cells) => cells[0] === agg.name);
        const other = right.get(agg.name);
        assert.equal(row[1], shown(agg.calls));
        assert.equal(row[3], shown(agg.self_device_duration));
        assert.equal(number(row[5]), (other?.self_device_duration ?? 0) - agg.self_device_duration);
    }
    const text = await tabText(real, "diff");
    assert.ok(
        text.includes(`${shown(diff.left.total_duration)} us`) && text.includes(`${shown(diff.right.total_duration)} us`),
    );
});

await test("the pickers change the trace everywhere", async () => {
    await real.selectOption("#pick-run", "num_workers_4");
    await openTab(real, "overview");
    await real.waitForSelector("#panel-overview[data-ready]");
    const overview = view("overview", join(TRACES, "num_workers_4"));
    await real.waitForFunction(
        (text) => document.querySelector("#panel-overview .fact small")?.textContent === text,
        `${shown(overview.performance[0].value)} us`,
    );
    await real.selectOption("#pick-run", "num_workers_0");
});

await test("tabs are reached with the keyboard", async () => {
    await real.click("#tab-overview");
    await real.keyboard.press("ArrowRight");
    assert.equal(await real.evaluate(() => document.activeElement.id), "tab-operators");
    await real.keyboard.press("End");
    await real.waitForSelector('#tab-roofline[aria-selected="true"]'); // the choice goes through the address, an event later
    assert.equal(await real.locator('[role=tab][tabindex="0"]').count(), 1);
    await real.keyboard.press("Home");
    await real.waitForSelector('#tab-overview[aria-selected="true"]');
    await real.waitForSelector("#panel-overview[data-ready]");
    await real.keyboard.press("/");
    assert.equal(await real.evaluate(() => document.activeElement.type), "search");
});

await test("dark and light, on paper light", async () => {
    const theme = () => real.evaluate(() => document.documentElement.dataset.theme);
    assert.equal(await theme(), "light");
    await real.click("header button");
    assert.equal(await theme(), "dark");
    for (const tab of ["overview", "operators", "kernels", "timeline", "diff"]) {
        await openTab(real, tab);
        await real.waitForTimeout(200);
        await real.screenshot({ path: join(shots, `real-${tab}-dark.png`) });
    }
    await real.click("header button");
    for (const tab of ["overview", "operators", "kernels", "timeline", "memory", "diff"]) {
        await openTab(real, tab);
        await real.waitForTimeout(200);
        await real.screenshot({ path: join(shots, `real-${tab}.png`), fullPage: tab !== "timeline" });
    }
    await openTab(real, "overview");
    await real.pdf({ path: join(shots, "real-overview.pdf") });
    await real.emulateMedia({ media: "print" });
    assert.equal(await real.locator(".tabs").isVisible(), false);
    const paper = await real
        .locator("#panel-overview")
        .evaluate((panel) =>
            Array.from(panel.querySelectorAll(".chart"), (box) => [
                box.getBoundingClientRect().width, // clientWidth is rounded, and a box may be 785.4 wide
                box.querySelector("canvas").getBoundingClientRect().width,
            ]),
        );
    for (const [box, canvas] of paper) assert.ok(canvas > 200 && canvas <= box, `a chart of ${canvas} in a box of ${box}`);
    await real.emulateMedia({ media: "screen" });
});

await test("a telephone's window holds every tab", async () => {
    await real.setViewportSize({ width: 390, height: 800 });
    for (const tab of ["overview", "operators", "kernels", "timeline", "memory", "modules", "distributed", "diff", "roofline"])
        await openTab(real, tab); // which fails where the page can be moved sideways
    await openTab(real, "timeline");
    const box = await real.locator(".timeline-box").boundingBox();
    assert.ok(box.height > 300, `the timeline has ${box.height} pixels of 800`);
    await real.screenshot({ path: join(shots, "narrow-timeline.png") });
    await real.setViewportSize({ width: 1280, height: 800 });
});

await test("nothing was said in the console and nothing left the machine", () => assertClean(real));
await real.close();

// ---- Made traces: modules, memory, workers
const made = logs("made", [
    "synthetic/ddp_nccl",
    "synthetic/gpu_modules",
    "synthetic/memory_long",
    "synthetic/lightning",
    "synthetic/mlu",
]);
const synthetic = await openPage(`file://${report(made, "made.html")}`, { colorScheme: "dark" });
const index = await synthetic.evaluate(() => JSON.parse(document.querySelector('script[data-view="index"]').textContent));
const idOf = (run, worker, span) =>
    index.traces.find((t) => t.run === run && (!worker || t.worker === worker) && (!span || t.span === span)).id;

await test("distributed shows overlap, waiting and collectives of every worker", async () => {
    await chooseTrace(synthetic, idOf("ddp_nccl"));
    await openTab(synthetic, "distributed");
    const folder = join(SYNTHETIC, "ddp_nccl");
    const text = await tabText(synthetic, "distributed");
    for (const name of ["distributed_overlap", "distributed_waittime"]) {
        const bars = view(name, folder);
        assert.ok(text.includes(bars.metadata.title));
        for (const values of Object.values(bars.data.all))
            assert.ok(text.includes(values.map((value, i) => `${bars.metadata.legends[i]} ${shown(value)} us`).join(" · ")));
    }
    const ops = view("distributed_commops", folder);
    const first = Object.keys(ops.data)[0];
    same(
        await tableRows(synthetic, "distributed"),
        ops.data[first].rows.map((row) => row.map(shown)),
    );
    assert.ok(text.includes("Synthetic GPU 80"));
    await synthetic.screenshot({ path: join(shots, "made-distributed.png") });
});

await test("modules are a tree with the view's numbers", async () => {
    for (const [run, span] of [
        ["gpu_modules", "1"],
        ["gpu_modules", "2"],
        ["lightning", "default"],
    ]) {
        await chooseTrace(synthetic, idOf(run, null, span));
        await openTab(synthetic, "modules");
        const expected = [];
        const module = view("module", join(SYNTHETIC, run), ...(span === "default" ? [] : ["--span", span]));
        const walk = (row) => {
            expected.push([
                `${row.name} #${row.id}`,
                ...module.columns.slice(1).map((column) => shown(row[column.key])),
                shown(row.avg_duration),
            ]);
            row.children.forEach(walk);
        };
        module.data.forEach(walk);
        await synthetic.waitForFunction(
            (first) => document.querySelector("#panel-modules tbody tr td:nth-child(4)")?.textContent === first,
            expected[0][3],
        );
        same(await tableRows(synthetic, "modules"), expected);
    }
});

await test("memory shows curve, operators and allocations of each device", async () => {
    for (const run of ["gpu_modules", "memory_long"]) {
        await chooseTrace(synthetic, idOf(run));
        await openTab(synthetic, "memory");
        const folder = join(SYNTHETIC, run);
        const [stats, curve, events] = ["memory", "memory_curve", "memory_events"].map((name) => view(name, folder));
        for (const device of curve.metadata.devices) {
            await synthetic.selectOption("#memory-device", device);
            await synthetic.waitForFunction(
                (text) => document.querySelector("#panel-memory .peak")?.textContent === text,
                curve.metadata.peaks[device],
            );
            await synthetic.waitForSelector("#panel-memory canvas");
            const tables = [stats.rows[device], events.rows[device]].filter(Boolean);
            for (const [at, rows] of tables.entries())
                same(sortedRows(await tableRows(synthetic, "memory", at)), sortedRows(rows.map((row) => row.map(shown))));
        }
        await synthetic.screenshot({ path: join(shots, `made-memory-${run}.png`) });
    }
});

await test("dragging over the curve restricts the allocations", async () => {
    const rows = await synthetic.locator("#panel-memory .count").nth(1).innerText();
    const box = await synthetic.locator("#panel-memory .u-over").boundingBox();
    await synthetic.mouse.move(box.x + box.width * 0.4, box.y + 40);
    await synthetic.mouse.down();
    await synthetic.mouse.move(box.x + box.width * 0.5, box.y + 60, { steps: 5 });
    await synthetic.mouse.up();
    await synthetic.waitForFunction(
        (before) => document.querySelectorAll("#panel-memory .count")[1].textContent !== before,
        rows,
    );
});

await test("an MLU trace has its own metrics", async () => {
    await chooseTrace(synthetic, idOf("mlu"));
    await openTab(synthetic, "overview");
    const overview = view("overview", join(SYNTHETIC, "mlu"));
    await synthetic.waitForFunction(
        (title) => document.querySelector("#panel-overview").innerText.includes(title),
        overview.mlu_metrics.title,
    );
});

await test("made traces are quiet too", () => assertClean(synthetic));
await synthetic.close();

// ---- Hostile names
await test("names that look like markup are text", async () => {
    const evil = `<script>window.pwned=1</script><img src=x onerror="window.pwned=2">`;
    const closing = `</script><script>window.pwned=3</script><!--<script>`;
    const span = (cat, name, ts, dur, extra, tid = 1, pid = 1) => ({ ph: "X", cat, name, pid, tid, ts, dur, args: extra });
    const events = [
        span("user_annotation", "ProfilerStep#1", 0, 1000, {}),
        span("cpu_op", evil, 10, 500, { "External id": 1, "Input Dims": [[2, 2]], "Call stack": `${evil};${closing}` }),
        span("cpu_op", closing, 520, 100, { "External id": 2, [evil]: closing }),
        span("cuda_runtime", "cudaLaunchKernel", 20, 10, { "External id": 1, correlation: 7 }),
        span(
            "kernel",
            evil,
            100,
            300,
            { "External id": 1, correlation: 7, device: 0, stream: 7, grid: [1, 1, 1], block: [1, 1, 1] },
            7,
            0,
        ),
        { ph: "M", name: "process_name", pid: 1, tid: 0, args: { name: evil } },
        { ph: "M", name: "thread_name", pid: 1, tid: 1, args: { name: closing } },
    ];
    const folder = join(WEB_WORK, "evil");
    rmSync(folder, { recursive: true, force: true });
    mkdirSync(folder);
    const trace = {
        schemaVersion: 1,
        deviceProperties: [{ id: 0, name: evil, totalGlobalMem: 1 << 30, computeMajor: 8, computeMinor: 0 }],
        traceEvents: events,
    };
    writeFileSync(join(folder, "bad<b>worker.pt.trace.json"), JSON.stringify(trace));
    const page = await openPage(`file://${report(folder, "evil.html", "--title", closing)}`);
    for (const tab of ["overview", "operators", "kernels", "timeline", "memory", "modules", "distributed", "diff", "roofline"])
        await openTab(page, tab);
    await openTab(page, "kernels");
    assert.equal((await tableRows(page, "kernels"))[0][0], evil);
    await openTab(page, "operators");
    same((await tableRows(page, "operators")).map((row) => row[0]).sort(), [evil, closing].sort());
    await page.locator("#panel-operators button.twist").first().click();
    await page.locator("#panel-operators td.detail ol").waitFor();
    await openTab(page, "timeline");
    await page.fill("#panel-timeline input[type=search]", "</script>");
    await page.keyboard.press("Enter");
    await page.waitForFunction(() => document.querySelector(".timeline-panel").innerText.includes("Arguments"));
    await page.waitForFunction(
        (text) => document.querySelector(".timeline-panel dl + h4 + div").innerText.includes(text),
        evil,
    );
    assert.equal(await page.evaluate(() => window.pwned), undefined);
    assert.equal(await page.locator("main img, main script").count(), 0);
    assertClean(page);
    await page.screenshot({ path: join(shots, "evil-timeline.png") });
    await page.close();
});

await test("traces with broken numbers and items are shown as far as they go", async () => {
    const folder = join(WEB_WORK, "broken");
    rmSync(folder, { recursive: true, force: true });
    const op = (name, ts, dur) => `{"ph":"X","cat":"cpu_op","name":"${name}","pid":1,"tid":1,"ts":${ts},"dur":${dur}}`;
    const good = op("a", 1, 5);
    const items = {
        nan: `${op("n", "NaN", 1)},{"ph":"C","name":"c","pid":1,"ts":2,"args":{"v":NaN,"w":3}}`,
        huge: `${op("n", "99999999999999999999999", "1e300")},${op("m", "4600000000000000", -1)}`,
        odd:
            `3,null,"x",[],{"ph":"X"},{"ph":"X","name":5,"ts":1,"dur":1},{"ph":"M","name":"thread_name","args":3},` +
            `{"ph":"s","id":1,"ts":1},{"ph":"f","id":1,"ts":2,"pid":1,"tid":1}`,
        cut: `{"ph":"X","cat`,
    };
    for (const [run, text] of Object.entries(items)) {
        mkdirSync(join(folder, run), { recursive: true });
        writeFileSync(join(folder, run, "w.pt.trace.json"), `{"traceEvents":[${good},${text}${run === "cut" ? "" : "]}"}`);
    }
    const page = await openPage(`file://${report(folder, "broken.html")}`);
    for (let trace = 0; trace < 4; trace++) {
        await chooseTrace(page, trace);
        for (const tab of [
            "overview",
            "operators",
            "kernels",
            "timeline",
            "memory",
            "modules",
            "distributed",
            "diff",
            "roofline",
        ]) {
            await openTab(page, tab);
            assert.doesNotMatch(await tabText(page, tab), /undefined|NaN|\[object|is not a function/);
        }
    }
    await chooseTrace(page, 0);
    await openTab(page, "overview");
    assert.match(await tabText(page, "overview"), /byte \d+: not valid JSON/); // `cut` comes first
    assertClean(page);
    await page.close();
});

await browser.close();
finish();
