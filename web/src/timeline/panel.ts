// What the timeline says about one event, with its arguments, and about a stretch of time.

import type { Data } from "../data";
import { h, note, replace } from "../dom";
import { duration, number } from "../format";
import { Table } from "../table";
import type { Cell } from "../types";
import type { Timeline } from "./model";

export function eventPanel(data: Data, trace: number, timeline: Timeline, event: number): HTMLElement {
    const lane = timeline.view.lanes[timeline.lane[event] ?? 0];
    const begin = (timeline.start[event] ?? 0) / 1000;
    const long = (timeline.dur[event] ?? 0) / 1000;
    const facts: [string, string][] = [
        ["Category", timeline.categoryOf(event)],
        ["Start", `${number(begin)} us`],
        ["Duration", long >= 1000 ? `${duration(long)} (${number(long)} us)` : duration(long)],
        ["Process", named(lane?.process, lane?.pid)],
        ["Thread", named(lane?.thread, lane?.tid)],
    ];
    const list = pairs(facts);
    const holder = h("div", {}, note("Reading the arguments…"));
    void argumentsOf(data, trace, timeline, event).then(
        (found) => replace(holder, found),
        (fault: Error) => replace(holder, note(fault.message)),
    );
    return h("div", { class: "event" }, h("h3", {}, timeline.nameOf(event)), list, h("h4", {}, "Arguments"), holder);
}

function named(name: string | undefined, id: string | undefined): string {
    return name ? `${name} (${id ?? ""})` : (id ?? "");
}

function pairs(facts: [string, string][]): HTMLElement {
    return h("dl", { class: "pairs stacked" }, ...facts.flatMap(([name, value]) => [h("dt", {}, name), h("dd", {}, value)]));
}

/** A report holds all arguments in one block; a server gives the chunk that holds the event. Either is a list of JSON texts. */
async function argumentsOf(data: Data, trace: number, timeline: Timeline, event: number): Promise<Node> {
    const size = timeline.view.args_chunk;
    const seq = timeline.seq[event] ?? 0;
    const chunk = Math.floor(seq / size);
    const texts = data.live
        ? await data.view<string[]>("timeline_args", trace, { path: String(chunk) })
        : await data.view<string[]>("timeline_args", trace);
    const text = texts[data.live ? seq - chunk * size : seq] ?? "";
    return argumentList(text);
}

function argumentList(text: string): Node {
    if (text === "") return note("This event has none.");
    let value: unknown;
    try {
        value = JSON.parse(text);
    } catch {
        return h("pre", {}, text); // cut short, or not quite JSON in the file
    }
    if (typeof value !== "object" || value === null || Array.isArray(value)) return h("pre", {}, text);
    const facts = Object.entries(value).map(([name, item]): [string, string] => {
        const plain = typeof item === "string" ? item : JSON.stringify(item);
        return [name, /stack$/i.test(name) ? plain.replace(/;/g, "\n") : plain];
    });
    return facts.length ? pairs(facts) : note("This event has none.");
}

/** Events that lie wholly in a stretch of time, by name. */
export function rangePanel(timeline: Timeline, from: number, to: number): HTMLElement {
    const counts = new Map<number, [number, number]>();
    for (let i = 0; i < timeline.count; i++) {
        if ((timeline.start[i] ?? 0) < from) continue;
        if ((timeline.start[i] ?? 0) > to) break;
        if (timeline.endOf(i) > to) continue;
        const name = timeline.name[i] ?? 0;
        const sum = counts.get(name) ?? [0, 0];
        counts.set(name, [sum[0] + 1, sum[1] + (timeline.dur[i] ?? 0) / 1000]);
    }
    const rows = [...counts].map(([name, [calls, total]]): Cell[] => [
        timeline.view.names[name] ?? "",
        calls,
        Number(total.toFixed(3)),
    ]);
    const columns = [
        { title: "Name", numeric: false },
        { title: "Calls", numeric: true },
        { title: "Total (us)", numeric: true, bar: true },
    ];
    return h(
        "div",
        { class: "event" },
        h("h3", {}, `${duration((to - from) / 1000)} measured`),
        new Table({ name: "events", columns, rows, sort: 2 }).element,
    );
}
