// Overview: how long a step takes, what it is made of, how busy the devices were, and what could be done about it.

import { lines, stackedSteps, type Line, type Part } from "../charts";
import type { Data } from "../data";
import { h, note, safeHtml, section } from "../dom";
import { bytes, duration, number } from "../format";
import { Table } from "../table";
import type { CounterEvent, Metrics, Overview, TraceInfo } from "../types";

export const ROLE_COLOURS: Record<string, string> = {
    Kernel: "--c1",
    Memcpy: "--c2",
    Memset: "--c6",
    Communication: "--c5",
    Runtime: "--c3",
    DataLoader: "--c4",
    "CPU Exec": "--c7",
    Other: "--c8",
};

export async function overviewTab(data: Data, trace: number): Promise<Node[]> {
    const overview = await data.view<Overview>("overview", trace);
    const counters = await data.maybe<CounterEvent[]>("trace_counters", trace);
    const info = await data.info(trace);
    const metrics = overview.gpu_metrics ?? overview.mlu_metrics;
    const average = overview.performance[0];
    const cards = h("div", { class: "cards" });
    if (average) cards.append(fact("Average step time", duration(average.value), `${number(average.value)} us`));
    cards.append(fact("Steps", number(overview.steps.rows.length)));
    for (const row of overview.environments) cards.append(fact(row.title, row.value));
    for (const row of metrics?.data ?? []) if (/ Utilization$/.test(row.title)) cards.append(fact(row.title, row.value));
    const parts = partsOf(overview);
    const steps = overview.steps.rows.map((row) => String(row[0]));
    const left = [section("Step time breakdown", stackedSteps(steps, parts))];
    const usage = utilisation(counters);
    if (usage) left.push(usage);
    left.push(section("Steps", stepTable(overview)));
    const right = [section("Execution summary", performance(overview))];
    if (metrics) right.push(section(metrics.title, metricsList(metrics)));
    right.push(section("Recommendations", advice(overview.recommendations)));
    if (info) right.push(section("The trace", infoList(info)));
    return [cards, h("div", { class: "split" }, h("div", {}, ...left), h("div", {}, ...right))];
}

function fact(title: string, value: string, small?: string): HTMLElement {
    return h(
        "div",
        { class: "fact" },
        h("span", {}, title),
        h("strong", {}, value),
        small && small !== value ? h("small", {}, small) : null,
    );
}

/** Every value column of the steps; the columns between hold tooltips, which we write ourselves. */
function partsOf(overview: Overview): Part[] {
    const parts: Part[] = [];
    overview.steps.columns.forEach((column, c) => {
        if (c === 0 || column.role) return;
        const values = overview.steps.rows.map((row) => Number(row[c]));
        parts.push({ name: column.name, colour: ROLE_COLOURS[column.name] ?? "--c8", values });
    });
    return parts;
}

function stepTable(overview: Overview): HTMLElement {
    const kept = overview.steps.columns.map((column, c) => ({ column, c })).filter(({ column }) => !column.role);
    const columns = kept.map(({ column, c }) => ({ title: c === 0 ? "Step" : `${column.name} (us)`, numeric: c > 0 }));
    columns.push({ title: "Total (us)", numeric: true });
    const rows = overview.steps.rows.map((row) => {
        const cells = kept.map(({ c }) => row[c] ?? null);
        return [...cells, cells.slice(1).reduce<number>((sum, cell) => sum + Number(cell), 0)];
    });
    return new Table({ name: "steps", columns, rows }).element;
}

function performance(overview: Overview): HTMLElement {
    const body = h("tbody");
    const add = (name: string, value: number, extra: number, top: boolean): void => {
        const bar = h("td", { class: "num share" }, number(value));
        bar.style.setProperty("--share", top ? "0%" : `${Math.min(Math.max(extra, 0), 100)}%`);
        body.append(
            h("tr", top ? { class: "total" } : {}, h("td", {}, name), bar, h("td", { class: "num" }, `${number(extra)}`)),
        );
    };
    for (const row of overview.performance) {
        add(row.name, row.value, row.extra, true);
        for (const child of row.children ?? []) add(child.name, child.value, child.extra, false);
    }
    const head = h(
        "tr",
        {},
        h("th", {}, "Category"),
        h("th", { class: "num" }, "Time (us)"),
        h("th", { class: "num" }, "Share (%)"),
    );
    return h("table", { class: "plain" }, h("thead", {}, head), body);
}

function metricsList(metrics: Metrics): HTMLElement {
    const list = h("dl", { class: "pairs" });
    for (const row of metrics.data) {
        if (row.title === "<hr/>") list.append(h("hr"));
        else if (row.value === "") list.append(h("dt", { class: "head" }, row.title));
        else list.append(h("dt", {}, row.title), h("dd", {}, row.value));
    }
    return h(
        "div",
        {},
        list,
        h("details", {}, h("summary", {}, "What these figures mean"), h("p", { class: "prose" }, metrics.tooltip)),
    );
}

function advice(html: string): HTMLElement {
    const box = h("div", { class: "advice" });
    box.append(safeHtml(html));
    return box.textContent?.trim() === "N/A" ? note("Nothing to advise for this trace.") : box;
}

/** Utilisation of each device over the time of the trace, from the counters that the trace view adds. */
function utilisation(counters: CounterEvent[] | null): HTMLElement | null {
    const named = (counters ?? []).filter((event) => / Utilization$/.test(event.name));
    const first = named[0];
    if (!first) return null;
    const devices = [...new Set(named.map((event) => event.name))];
    const times = [...new Set(named.map((event) => event.ts))].sort((a, b) => a - b);
    const place = new Map(times.map((ts, i) => [ts, i]));
    const all = devices.map((name, d): Line => {
        const values = new Array<number | null>(times.length).fill(null);
        for (const event of named)
            if (event.name === name) values[place.get(event.ts) ?? 0] = 100 * (Object.values(event.args)[0] ?? 0);
        return { name: name.replace(/ Utilization$/, ""), colour: `--c${(d % 8) + 1}`, values, fill: devices.length === 1 };
    });
    const x = times.map((ts) => (ts - first.ts) / 1000);
    return section(
        "Device utilisation",
        lines(x, all, { xLabel: "Time (ms)", yLabel: "Busy (%)", most: 105, steps: true, height: 180 }),
    );
}

function infoList(info: TraceInfo): HTMLElement {
    const pairs: [string, string][] = [
        ["Dialect", info.dialect],
        ["Text", bytes(info.text_bytes)],
        ["Events", number(info.events_seen)],
        ["Used by the views", number(info.events_kept)],
    ];
    if (info.events_broken) pairs.push(["Broken, left out", number(info.events_broken)]);
    if (info.events_unknown) pairs.push(["Of unknown categories, left out", number(info.events_unknown)]);
    if (info.events_backward) pairs.push(["Ending before they begin", number(info.events_backward)]);
    if (info.nodes_dropped) pairs.push(["Overlapping operators left out", number(info.nodes_dropped)]);
    if (info.orphan_kernels) pairs.push(["Kernels that no call launched", number(info.orphan_kernels)]);
    return h("dl", { class: "pairs" }, ...pairs.flatMap(([name, value]) => [h("dt", {}, name), h("dd", {}, value)]));
}
