// The server gives the same page, answers views as the command does, and answers nobody else.
import assert from "node:assert/strict";
import { execFileSync, spawn, spawnSync } from "node:child_process";
import { request } from "node:http";
import { connect } from "node:net";
import { join } from "node:path";
import {
    assertClean,
    browser,
    finish,
    openPage,
    openTab,
    QUERN,
    shots,
    shown,
    tableRows,
    test,
    TRACES,
    view,
    WEB_WORK,
    logs,
} from "./help.mjs";

const folder = logs("served", ["num_workers_0", "synthetic/gpu_modules"]);
const server = spawn(QUERN, ["profile", "serve", folder, "--port", "0"], { stdio: ["ignore", "pipe", "inherit"] });
const address = await new Promise((done) => server.stdout.once("data", (text) => done(String(text).trim())));
const port = Number(new URL(address).port);

function ask(path, options = {}) {
    return new Promise((done, fail) => {
        const one = request({ host: "127.0.0.1", port, path, ...options }, (answer) => {
            let text = "";
            answer.on("data", (piece) => (text += piece));
            answer.on("end", () => done({ code: answer.statusCode, headers: answer.headers, text }));
        });
        one.on("error", fail);
        one.end(options.body);
    });
}

await test("views come as the command prints them", async () => {
    const index = JSON.parse((await ask("/api/index")).text);
    assert.deepEqual(
        index.traces.map((trace) => `${trace.run}/${trace.worker}/${trace.span}`),
        ["gpu_modules/worker0/1", "gpu_modules/worker0/2", "num_workers_0/worker0/1"],
    );
    for (const name of ["overview", "kernel_table", "memory", "module", "timeline"]) {
        const printed = execFileSync(QUERN, ["profile", name, join(TRACES, "synthetic/gpu_modules"), "--json"], {
            maxBuffer: 1 << 28,
            stdio: ["ignore", "pipe", "ignore"],
        }).toString();
        assert.equal((await ask(`/api/view?view=${name}&trace=0`)).text.trim(), printed.trim(), name);
    }
});

await test("wrong questions get an answer, not a hang", async () => {
    assert.equal((await ask("/nothing")).code, 404);
    assert.equal((await ask("/../../etc/passwd")).code, 404);
    assert.equal((await ask("/api/view")).code, 400);
    assert.equal((await ask("/api/view?view=overview&trace=-1")).code, 400);
    assert.match(JSON.parse((await ask("/api/view?view=overview&trace=99")).text).error, /no trace 99/);
    assert.match(JSON.parse((await ask("/api/view?view=<b>&trace=0")).text).error, /<b>/);
    assert.match(JSON.parse((await ask("/api/view?view=module&trace=2")).text).error, /no module/);
    assert.equal((await ask("/", { method: "POST", body: "x".repeat(100000) })).code, 405);
    assert.equal((await ask("/", { headers: { host: "evil.example" } })).code, 403);
    assert.equal((await ask("/", { headers: { host: `localhost:${port}` } })).code, 200);
    assert.equal((await ask("/", { headers: { host: `LocalHost:${port}` } })).code, 200);
    assert.equal((await ask("/", { method: "DELETE" })).headers.allow, "GET, HEAD");
    const head = await ask("/");
    assert.equal(head.headers["x-content-type-options"], "nosniff");
});

/** What comes back for raw bytes, until the server closes or nothing comes for a second. */
function raw(text) {
    return new Promise((done) => {
        let answer = "";
        const socket = connect(port, "127.0.0.1", () => socket.write(text));
        socket.setTimeout(1000, () => socket.destroy());
        socket.on("data", (piece) => (answer += piece));
        socket.on("error", () => {});
        socket.on("close", () => done(answer));
    });
}

await test("one connection brings many answers, unless a question has a body", async () => {
    const one = `GET /api/index HTTP/1.1\r\nHost: 127.0.0.1:${port}\r\n`;
    const count = (text) => text.split("HTTP/1.1 200 OK").length - 1;
    assert.equal(count(await raw(`${one}\r\n`.repeat(20))), 20);
    assert.equal(count(await raw(`${one}Connection: close\r\n\r\n`.repeat(2))), 1);
    for (const body of ["Content-Length: 5\r\n\r\nhello", "Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n"])
        assert.equal(count(await raw(`${one}${body}${one}\r\n`)), 1);
    for (const odd of ["", "\0", "GET", "GET /\r\n\r\n", `${one}Content-Length: -1\r\n\r\n`, `${one}nothing\r\n\r\n`, "x".repeat(200000)])
        await raw(odd);
    assert.equal((await ask("/api/index")).code, 200);
});

await test("the served page shows the tabs, and arguments on demand", async () => {
    const page = await openPage(`${address}#trace=2`);
    for (const tab of ["overview", "operators", "kernels", "timeline", "memory", "modules", "distributed", "diff", "roofline"])
        await openTab(page, tab);
    await openTab(page, "kernels");
    const table = view("kernel_table", join(TRACES, "num_workers_0"));
    assert.deepEqual((await tableRows(page, "kernels"))[0], table.data.rows[0].map(shown));
    await openTab(page, "timeline");
    await page.fill("#panel-timeline input[type=search]", "volta_sgemm");
    await page.keyboard.press("Enter");
    await page.waitForFunction(() => /shared memory/.test(document.querySelector(".timeline-panel").innerText));
    await page.screenshot({ path: join(shots, "served-timeline.png") });
    await page.selectOption("#pick-run", "gpu_modules");
    await openTab(page, "memory");
    await page.waitForSelector("#panel-memory .u-over");
    const calls = () => page.locator("#panel-memory .table tbody").first().innerText();
    const before = await calls();
    const box = await page.locator("#panel-memory .u-over").boundingBox();
    await page.mouse.move(box.x + box.width * 0.1, box.y + 40);
    await page.mouse.down();
    await page.mouse.move(box.x + box.width * 0.3, box.y + 60, { steps: 5 });
    await page.mouse.up();
    await page.waitForFunction((text) => document.querySelector("#panel-memory .table tbody").innerText !== text, before);
    assertClean(page);
    await page.close();
});

await test("it ends when asked to", async () => {
    const ended = new Promise((done) => server.once("exit", (code) => done(code)));
    server.kill("SIGINT");
    assert.equal(await ended, 0);
});

await test("what cannot be done is said in a sentence", () => {
    const run = (...words) => spawnSync(QUERN, ["profile", ...words], { encoding: "utf8" });
    const missing = run("html", join(WEB_WORK, "no-such-folder"), "-o", join(WEB_WORK, "never.html"));
    assert.equal(missing.status, 1);
    assert.match(missing.stderr, /no-such-folder/);
    assert.equal(run("serve", folder, "--port", "99999").status, 2);
    assert.equal(run("serve", folder, "--host", "no.numeric.address", "--port", "0").status, 1);
    assert.equal(run("html").status, 2);
});

await browser.close();
finish();
