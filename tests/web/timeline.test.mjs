// The timeline moves, finds and tells; and a large one is drawn in the time of a frame or a few.
import assert from "node:assert/strict";
import { mkdirSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { assertClean, browser, finish, openPage, openTab, report, shots, test, TRACES, view, WEB_WORK } from "./help.mjs";

const REAL = join(TRACES, "num_workers_0");
const state = (page) =>
    page.$eval(".timeline", (element) => ({
        from: Number(element.dataset.from),
        to: Number(element.dataset.to),
        paint: Number(element.dataset.paint),
    }));
const settle = (page) => page.evaluate(() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done))));

const page = await openPage(`file://${report(REAL, "timeline.html")}`);
await openTab(page, "timeline");
await page.waitForSelector(".timeline[data-paint]");
const view0 = view("timeline", REAL);

await test("it holds every event of the trace", async () => {
    const text = await page.locator(".timeline .count").last().innerText();
    assert.ok(text.startsWith(`${view0.ts.length.toLocaleString("en-US")} events`), text);
    const trace = view("trace_view", REAL);
    assert.equal(
        view0.ts.length,
        trace.traceEvents.filter((e) => e.ph === "X" || (e.ph === "i" && e.name !== "[memory]")).length,
    );
});

await test("keys zoom and move", async () => {
    await page.focus(".timeline canvas");
    const all = await state(page);
    for (let i = 0; i < 6; i++) await page.keyboard.press("w");
    await settle(page);
    const near = await state(page);
    assert.ok(near.to - near.from < (all.to - all.from) / 3);
    await page.keyboard.press("d");
    await settle(page);
    const right = await state(page);
    assert.ok(right.from > near.from && Math.abs(right.to - right.from - (near.to - near.from)) < 2);
    await page.keyboard.press("ArrowLeft");
    await page.keyboard.press("s");
    await page.keyboard.press("0");
    await settle(page);
    assert.deepEqual([(await state(page)).from, (await state(page)).to], [all.from, all.to]);
});

await test("the wheel zooms at the pointer and dragging moves", async () => {
    const box = await page.locator(".timeline canvas").boundingBox();
    const x = box.x + box.width / 4;
    const before = await state(page);
    const under = before.from + (before.to - before.from) / 4;
    await page.mouse.move(x, box.y + 300);
    await page.keyboard.down("Control");
    for (let i = 0; i < 5; i++) await page.mouse.wheel(0, -120);
    await page.keyboard.up("Control");
    await page.waitForTimeout(100);
    const near = await state(page);
    assert.ok(near.to - near.from < (before.to - before.from) / 2);
    assert.ok(
        Math.abs(near.from + (near.to - near.from) / 4 - under) < (near.to - near.from) / 50,
        "the moment under the pointer stays there",
    );
    await page.mouse.down();
    await page.mouse.move(x + 100, box.y + 300, { steps: 4 });
    await page.mouse.up();
    await settle(page);
    assert.ok((await state(page)).from < near.from);
});

await test("search goes through its matches and the panel tells the arguments", async () => {
    await page.keyboard.press("0");
    await page.keyboard.press("/");
    await page.keyboard.type("cudnn::bn_fw_tr");
    const names = new Set(
        view0.names.map((name, i) => (name.toLowerCase().includes("cudnn::bn_fw_tr") ? i : -1)).filter((i) => i >= 0),
    );
    const count = view0.name.filter((name) => names.has(name)).length;
    const label = () => page.locator(".timeline .count").first().innerText();
    assert.equal(await label(), `${count.toLocaleString("en-US")} found`);
    await page.keyboard.press("Enter");
    await page.keyboard.press("Enter");
    assert.equal(await label(), `2 of ${count.toLocaleString("en-US")}`);
    await page.keyboard.press("Shift+Enter");
    await page.keyboard.press("Shift+Enter");
    assert.equal(await label(), `${count.toLocaleString("en-US")} of ${count.toLocaleString("en-US")}`);
    await page.waitForFunction(() => /registers per thread/.test(document.querySelector(".timeline-panel").innerText));
    await page.waitForTimeout(100);
    await page.screenshot({ path: join(shots, "timeline-search.png") });
    await page.keyboard.press("Escape");
    assert.equal(await page.evaluate(() => document.activeElement.tagName), "CANVAS");
    await page.fill("#panel-timeline input[type=search]", "");
    assert.equal(await label(), "");
});

await test("pointing names an event, clicking selects it", async () => {
    await page.fill("#panel-timeline input[type=search]", "");
    await page.focus(".timeline canvas");
    await page.keyboard.press("Escape");
    await page.keyboard.press("0");
    await settle(page);
    const box = await page.locator(".timeline canvas").boundingBox();
    for (let y = 40; y < box.height; y += 6) {
        await page.mouse.move(box.x + box.width * 0.4, box.y + y);
        if (!(await page.locator(".timeline canvas").getAttribute("title"))?.startsWith("ProfilerStep#7")) continue;
        await page.mouse.click(box.x + box.width * 0.4, box.y + y);
        await page.waitForFunction(() => document.querySelector(".timeline-panel h3")?.textContent === "ProfilerStep#7");
        return;
    }
    assert.fail("the step is nowhere to be found");
});

await test("a track folds and unfolds at its title", async () => {
    const before = await page.locator(".timeline canvas").screenshot();
    const box = await page.locator(".timeline canvas").boundingBox();
    await page.mouse.click(box.x + 60, box.y + 37);
    await settle(page);
    assert.notDeepEqual(await page.locator(".timeline canvas").screenshot(), before);
    await page.mouse.click(box.x + 60, box.y + 37);
    await settle(page);
});

await test("Shift and drag measure a stretch of time", async () => {
    const box = await page.locator(".timeline canvas").boundingBox();
    await page.keyboard.down("Shift");
    await page.mouse.move(box.x + 200, box.y + 400);
    await page.mouse.down();
    await page.mouse.move(box.x + 400, box.y + 420, { steps: 4 });
    await page.mouse.up();
    await page.keyboard.up("Shift");
    await page.waitForFunction(() => /measured/.test(document.querySelector(".timeline-panel").innerText));
    assert.ok((await page.locator(".timeline-panel tbody tr").count()) > 10);
    await page.screenshot({ path: join(shots, "timeline-measure.png") });
});

await test("the timeline is quiet", () => assertClean(page));
await page.close();

await test("a million events pan and zoom", async () => {
    const folder = join(WEB_WORK, "many");
    rmSync(folder, { recursive: true, force: true });
    mkdirSync(folder);
    const parts = [];
    const add = (cat, name, where, ts, dur, args = {}) =>
        parts.push(
            `{"ph":"X","cat":"${cat}","name":"${name}",${where},"ts":${ts},"dur":${dur},"args":${JSON.stringify(args)}}`,
        );
    const [host, device] = ['"pid":1,"tid":1', '"pid":0,"tid":7'];
    for (let i = 0, t = 0; i < 250000; i++, t += 20) {
        const ids = { "External id": i, correlation: i };
        add("cpu_op", `aten::op${i % 97}`, host, t, 18, { "External id": i });
        add("cpu_op", `aten::inner${i % 89}`, host, t + 1, 15);
        add("cuda_runtime", "cudaLaunchKernel", host, t + 2, 5, ids);
        add("kernel", `kernel${i % 101}`, device, t + 5, 5 + (i % 14), { ...ids, device: 0 });
    }
    writeFileSync(
        join(folder, "worker0.pt.trace.json"),
        `{"schemaVersion":1,"deviceProperties":[],"traceEvents":[\n${parts.join(",\n")}\n]}`,
    );
    const big = await openPage(`file://${report(folder, "many.html")}`);
    await openTab(big, "timeline");
    await big.waitForSelector(".timeline[data-paint]");
    await big.focus(".timeline canvas");
    const times = [];
    for (const key of ["0", ..."wwwwwwwwwwwwwwwwwwwwddddaassssssssssssssssssss0"]) {
        await big.keyboard.press(key);
        await settle(big);
        times.push((await state(big)).paint);
    }
    times.sort((a, b) => a - b);
    const median = times[times.length >> 1];
    const worst = times[Math.floor(times.length * 0.95)];
    console.log(`    1,000,000 events: painting takes ${median} ms at the median, ${worst} ms at the 95th percentile`);
    assert.ok(median < 30 && worst < 120);
    assertClean(big);
    await big.close();
});

await browser.close();
finish();
