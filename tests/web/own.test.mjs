// A page made from a run of Quern itself: recorded, analysed and shown, with the roofline that PyTorch's traces cannot have.
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { rmSync } from "node:fs";
import { join } from "node:path";
import {
    assertClean,
    browser,
    finish,
    openPage,
    openTab,
    QUERN,
    report,
    shots,
    shown,
    tableRows,
    test,
    view,
    WEB_WORK,
} from "./help.mjs";

const folder = join(WEB_WORK, "own");
rmSync(folder, { recursive: true, force: true });
try {
    execFileSync(QUERN, ["bench", "dispatch", `--profile=${folder}`], { stdio: "ignore" });
} catch (fault) {
    if (fault.status !== 1) throw fault; // 1: slower than its limit on a busy machine; the trace is there all the same
}

const page = await openPage(`file://${report(folder, "own.html")}`);

await test("a run of Quern fills the tabs", async () => {
    for (const tab of ["overview", "operators", "kernels", "timeline", "memory", "modules", "distributed", "diff", "roofline"])
        await openTab(page, tab);
    await openTab(page, "operators");
    const table = view("operation_table", folder);
    assert.deepEqual(
        (await tableRows(page, "operators")).map((row) => row[0]),
        table.data.map((row) => row.name),
    );
    await openTab(page, "timeline");
    await page.waitForSelector(".timeline[data-paint]");
    await page.screenshot({ path: join(shots, "own-timeline.png") });
});

await test("the roofline shows each operator against the machine's limit", async () => {
    await openTab(page, "roofline");
    const roofline = view("roofline", folder);
    assert.deepEqual(
        await tableRows(page, "roofline"),
        roofline.rows.map((row) => row.map(shown)),
    );
    await page.waitForSelector("#panel-roofline canvas");
    assert.equal(await page.locator("#panel-roofline .fact").count(), 3);
    await page.waitForTimeout(200);
    await page.screenshot({ path: join(shots, "own-roofline.png") });
});

await test("Quern's own page is quiet", () => assertClean(page));
await browser.close();
finish();
