// What the tests of the page share: a browser that complains, quern's own answers, and tables read back from the page.
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdirSync, rmSync, symlinkSync, readdirSync } from "node:fs";
import { createRequire } from "node:module";
import { join } from "node:path";

export const { CHROMIUM, WEB_WORK, QUERN, TRACES } = process.env;
const { chromium } = createRequire(join(WEB_WORK, "x.js"))("playwright-core");
export const shots = join(WEB_WORK, "shots");
mkdirSync(shots, { recursive: true });

let failures = 0;
export async function test(name, body) {
    try {
        await body();
        console.log(`ok ${name}`);
    } catch (fault) {
        failures++;
        console.log(
            `FAIL ${name}\n    ${String(fault.stack ?? fault)
                .split("\n")
                .slice(0, 12)
                .join("\n    ")}`,
        );
    }
}
export function finish() {
    process.exitCode = failures ? 1 : 0;
}

export const browser = await chromium.launch({ executablePath: CHROMIUM, args: ["--no-sandbox", "--disable-gpu"] });

/** A page at 1280x800 that remembers everything said in its console and every request that leaves the machine. */
export async function openPage(address, options = {}) {
    const page = await browser.newPage({ viewport: { width: 1280, height: 800 }, ...options });
    page.faults = [];
    page.on("console", (message) => page.faults.push(`${message.type()}: ${message.text()}`));
    page.on("pageerror", (fault) => page.faults.push(`error: ${fault.message}`));
    page.on("request", (request) => {
        const url = request.url();
        if (!/^(file|data|blob):|^http:\/\/127\.0\.0\.1:/.test(url)) page.faults.push(`request: ${url}`);
    });
    await page.goto(address);
    await page.waitForSelector("main");
    return page;
}

export async function openTab(page, tab) {
    await page.click(`#tab-${tab}`);
    await page.waitForSelector(`#panel-${tab}[data-ready]`, { timeout: 60000 });
    const over = await page.evaluate(() => document.documentElement.scrollWidth - window.innerWidth);
    assert.ok(over <= 0, `${tab} scrolls sideways by ${over} pixels`);
}

export async function chooseTrace(page, trace) {
    await page.evaluate((id) => {
        const now = new URLSearchParams(location.hash.slice(1));
        now.set("trace", String(id));
        location.hash = `#${now}`;
    }, trace);
}

/** A view as the command prints it. */
export function view(name, path, ...options) {
    return JSON.parse(
        execFileSync(QUERN, ["profile", name, path, "--json", ...options], {
            maxBuffer: 1 << 30,
            stdio: ["ignore", "pipe", "ignore"],
        }).toString(),
    );
}

export function report(path, out, ...options) {
    const file = join(WEB_WORK, out);
    execFileSync(QUERN, ["profile", "html", path, "-o", file, ...options], { stdio: ["ignore", "ignore", "inherit"] });
    return file;
}

/** A log directory with the named folders of the trace data as its runs. */
export function logs(name, runs) {
    const folder = join(WEB_WORK, name);
    rmSync(folder, { recursive: true, force: true });
    for (const run of runs) {
        const to = join(folder, run.split("/").pop());
        mkdirSync(to, { recursive: true });
        for (const file of readdirSync(join(TRACES, run)))
            if (/\.pt\.trace\.json(\.gz)?$/.test(file)) symlinkSync(join(TRACES, run, file), join(to, file));
    }
    return folder;
}

const whole = new Intl.NumberFormat("en-US", { maximumFractionDigits: 6 });
/** A cell as the page writes it. */
export function shown(value) {
    if (typeof value === "number") return whole.format(value);
    return value === null ? "" : String(value);
}

/** All rows of the n-th table of a tab, as text; scrolls until the last one is there. */
export async function tableRows(page, tab, at = 0) {
    const box = page.locator(`#panel-${tab} .table .scroll`).nth(at);
    for (let before = -1, now = 0; before !== now;) {
        before = now;
        now = await box.evaluate((element) => {
            element.scrollTop = element.scrollHeight;
            element.dispatchEvent(new Event("scroll"));
            return element.querySelectorAll("tbody tr").length;
        });
    }
    return box.evaluate((element) =>
        Array.from(element.querySelectorAll("tbody tr"), (row) =>
            Array.from(row.cells, (cell) =>
                Array.from(cell.childNodes)
                    .filter((n) => n.nodeName !== "BUTTON")
                    .map((n) => n.textContent)
                    .join(""),
            ),
        ),
    );
}

export async function tabText(page, tab) {
    return page.locator(`#panel-${tab}`).innerText();
}

export function assertClean(page) {
    assert.deepEqual(page.faults, []);
}
