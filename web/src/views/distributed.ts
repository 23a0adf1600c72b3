// Distributed: how much communication hides behind computation, how long workers wait for each other, and what is sent.

import { stackedRows } from "../charts";
import type { Data } from "../data";
import { h, picker, section } from "../dom";
import { columnsOf, Table } from "../table";
import type { CommOps, DeviceInfo, StepBars } from "../types";

export async function distributedTab(data: Data, trace: number): Promise<Node[]> {
    const overlap = await data.view<StepBars>("distributed_overlap", trace);
    const wait = await data.maybe<StepBars>("distributed_waittime", trace);
    const ops = await data.maybe<CommOps>("distributed_commops", trace);
    const devices = await data.maybe<DeviceInfo | null>("distributed_deviceinfo", trace);
    const nodes: Node[] = [
        h(
            "div",
            { class: "grid" },
            bars(overlap, ["--c1", "--c3", "--c5", "--c8"]),
            wait ? bars(wait, ["--c1", "--c4"]) : null,
        ),
    ];
    if (ops) nodes.push(section(ops.metadata.title, commOps(ops)));
    if (devices) nodes.push(section(devices.metadata.title, deviceCards(devices)));
    return nodes;
}

function bars(view: StepBars, colours: string[]): HTMLElement {
    const holder = h("div");
    const steps = Object.keys(view.data);
    const sorted = ["all", ...steps.filter((step) => step !== "all")].filter((step) => step in view.data);
    const show = (step: string): void => {
        const workers = view.data[step] ?? {};
        const rows = Object.keys(workers).map((name) => ({ name, values: workers[name] ?? [] }));
        holder.replaceChildren(stackedRows(rows, view.metadata.legends, colours));
    };
    const label = (step: string): string =>
        step === "all" ? "Average of all steps" : step === "null" ? "Outside every step" : `Step ${step}`;
    const choose = picker(
        "Step",
        sorted.map((step) => ({ value: step, label: label(step) })),
        "all",
        show,
    );
    show("all");
    return section(`${view.metadata.title} (${view.metadata.units})`, h("div", { class: "controls no-print" }, choose), holder);
}

function commOps(view: CommOps): HTMLElement {
    const holder = h("div");
    const workers = Object.keys(view.data);
    const show = (worker: string): void => {
        const grid = view.data[worker];
        if (!grid) return;
        const columns = columnsOf(grid.columns, "Total Latency (us)");
        holder.replaceChildren(new Table({ name: "collectives", columns, rows: grid.rows, sort: 4 }).element);
    };
    show(workers[0] ?? "");
    const choose = picker(
        "Worker",
        workers.map((value) => ({ value, label: value })),
        workers[0] ?? "",
        show,
    );
    return h("div", {}, h("div", { class: "controls no-print" }, choose), holder);
}

function deviceCards(view: DeviceInfo): HTMLElement {
    const box = h("div", { class: "cards" });
    for (const [node, processes] of Object.entries(view.data))
        for (const [process, devices] of Object.entries(processes))
            for (const [device, facts] of Object.entries(devices)) {
                const list = h("dl", { class: "pairs" });
                for (const [name, value] of Object.entries(facts))
                    if (name !== "Memory Raw") list.append(h("dt", {}, name), h("dd", {}, String(value)));
                box.append(h("div", { class: "fact wide" }, h("span", {}, `${node} · ${process} · ${device}`), list));
            }
    return box;
}
