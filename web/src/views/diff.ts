// Diff: two traces side by side. What changed most comes first, by operator and by kernel; then the steps of the two programs.

import type { Data, TraceRef } from "../data";
import { traceLabel } from "../data";
import { h, note, picker, section } from "../dom";
import { duration, number, percent, signed } from "../format";
import { Table } from "../table";
import type { Cell, DiffAgg, DiffNode, DiffSide, KernelTable } from "../types";

export async function diffTab(data: Data, trace: number): Promise<Node[]> {
    const traces = data.index.traces;
    if (traces.length < 2)
        return [
            note(
                "There is only one trace here. Give a directory with two, or a second profile with --against, to compare them.",
            ),
        ];
    const holder = h("div");
    let left = trace;
    let right = (traces.find((ref) => ref.against) ?? (traces.find((ref) => ref.id !== trace) as TraceRef)).id;
    const show = async (): Promise<void> => {
        holder.replaceChildren(note("Comparing…"));
        try {
            holder.replaceChildren(...(await compare(data, left, right)));
        } catch (fault) {
            holder.replaceChildren(note((fault as Error).message));
        }
    };
    const choices = traces.map((ref) => ({ value: String(ref.id), label: traceLabel(ref) }));
    const controls = h(
        "div",
        { class: "controls no-print" },
        picker(
            "Left (before)",
            choices.filter((_, i) => !traces[i]?.against),
            String(left),
            (value) => {
                left = Number(value);
                void show();
            },
            "diff-left",
        ),
        picker(
            "Right (after)",
            choices,
            String(right),
            (value) => {
                right = Number(value);
                void show();
            },
            "diff-right",
        ),
    );
    await show();
    return [controls, holder];
}

async function compare(data: Data, left: number, right: number): Promise<Node[]> {
    if (left === right) return [note("Both sides are the same trace.")];
    const diff = await data.view<DiffNode>("diff", left, { other: right });
    const kernels = [
        await data.maybe<KernelTable>("kernel_table", left),
        await data.maybe<KernelTable>("kernel_table", right),
    ] as const;
    const nodes: Node[] = [
        h(
            "div",
            { class: "cards" },
            total("Host time", diff.left.duration, diff.right.duration),
            total("Device time", diff.left.device_duration, diff.right.device_duration),
            total("Total time", diff.left.total_duration, diff.right.total_duration),
        ),
    ];
    nodes.push(section("Operators, largest change first", operatorChanges(diff.left.aggs, diff.right.aggs)));
    if (kernels[0] && kernels[1]) nodes.push(section("Kernels, largest change first", kernelChanges(kernels[0], kernels[1])));
    nodes.push(section("Side by side", sideBySide(diff)));
    return nodes;
}

function total(title: string, before: number, after: number): HTMLElement {
    const change = before ? (after - before) / before : NaN;
    return h(
        "div",
        { class: "fact" },
        h("span", {}, title),
        h("strong", {}, `${duration(before)} → ${duration(after)}`),
        h(
            "small",
            { class: after > before ? "worse" : "better" },
            Number.isFinite(change) ? `${change > 0 ? "+" : ""}${percent(change)}` : "",
        ),
    );
}

const change = (value: Cell): string => signed(Number(value));
const relative = (value: Cell): string => (value === null ? "–" : signed(Number(value)));

/** Per cent; null where there is nothing to compare with. */
function ratio(before: number, after: number): number | null {
    return before === 0 ? null : Number(((100 * (after - before)) / before).toFixed(1));
}

function operatorChanges(left: DiffAgg[], right: DiffAgg[]): HTMLElement {
    const device = [...left, ...right].some((agg) => agg.self_device_duration !== 0);
    const self = (agg?: DiffAgg): number => (agg ? (device ? agg.self_device_duration : agg.self_host_duration) : 0);
    const host = (agg?: DiffAgg): number => agg?.host_duration ?? 0;
    const other = new Map(right.map((agg) => [agg.name, agg]));
    const names = [...new Set([...left.map((agg) => agg.name), ...other.keys()])];
    const before = new Map(left.map((agg) => [agg.name, agg]));
    const rows = names.map((name): Cell[] => {
        const [a, b] = [before.get(name), other.get(name)];
        return [
            name,
            a?.calls ?? 0,
            b?.calls ?? 0,
            self(a),
            self(b),
            self(b) - self(a),
            ratio(self(a), self(b)),
            host(a),
            host(b),
            host(b) - host(a),
        ];
    });
    const what = device ? "Device Self" : "Host Self";
    const titles = [
        "Name",
        "Calls left",
        "Calls right",
        `${what} left (us)`,
        `${what} right (us)`,
        `${what} change (us)`,
        "Change (%)",
        "Host left (us)",
        "Host right (us)",
        "Host change (us)",
    ];
    const columns = titles.map((title, c) => ({
        title,
        numeric: c > 0,
        bar: c === 5,
        ...(c === 5 || c === 9 ? { format: change } : c === 6 ? { format: relative } : {}),
    }));
    return new Table({ name: "operators", columns, rows, sort: 5, byMagnitude: true }).element;
}

function kernelChanges(left: KernelTable, right: KernelTable): HTMLElement {
    const read = (table: KernelTable): Map<string, [number, number]> => {
        const calls = table.data.columns.findIndex((column) => column.name === "Calls");
        const sum = table.data.columns.findIndex((column) => column.name === "Total Duration (us)");
        return new Map(table.data.rows.map((row) => [String(row[0]), [Number(row[calls]), Number(row[sum])]]));
    };
    const [before, after] = [read(left), read(right)];
    const rows = [...new Set([...before.keys(), ...after.keys()])].map((name): Cell[] => {
        const a = before.get(name) ?? [0, 0];
        const b = after.get(name) ?? [0, 0];
        return [name, a[0], b[0], a[1], b[1], b[1] - a[1], ratio(a[1], b[1])];
    });
    const titles = ["Name", "Calls left", "Calls right", "Total left (us)", "Total right (us)", "Change (us)", "Change (%)"];
    const columns = titles.map((title, c) => ({
        title,
        numeric: c > 0,
        bar: c === 5,
        ...(c === 5 ? { format: change } : c === 6 ? { format: relative } : {}),
    }));
    return new Table({ name: "kernels", columns, rows, sort: 5, byMagnitude: true }).element;
}

/** The tree of matched parts, one bar a side, opened one level at a time. */
function sideBySide(root: DiffNode): HTMLElement {
    const largest = Math.max(root.left.total_duration, root.right.total_duration, 1);
    const list = h("ul", { class: "diff-tree" });
    addPart(list, root, largest, true);
    return list;
}

function sideBar(side: DiffSide, largest: number, colour: string): HTMLElement {
    const fill = h("span", { class: "fill" });
    fill.style.width = `${(100 * side.total_duration) / largest}%`;
    fill.style.background = `var(${colour})`;
    return h(
        "div",
        { class: "side" },
        h("span", { class: "name" }, side.name),
        h("span", { class: "value" }, `${number(side.total_duration)} us`),
        h("span", { class: "track" }, fill),
    );
}

function addPart(list: HTMLElement, node: DiffNode, largest: number, open: boolean): void {
    const item = h("li");
    const delta = node.right.total_duration - node.left.total_duration;
    const mark = h("span", { class: delta > 0 ? "delta worse" : "delta better" }, `${signed(delta)} us`);
    const pair = h("div", { class: "pair" }, sideBar(node.left, largest, "--c1"), sideBar(node.right, largest, "--c4"), mark);
    list.append(item);
    if (node.children.length === 0) {
        item.append(pair);
        return;
    }
    const inner = h("ul");
    const details = h("details", open ? { open: true } : {}, h("summary", {}, pair), inner);
    const fill = (): void => {
        if (details.open && !inner.firstChild) for (const child of node.children) addPart(inner, child, largest, false);
    };
    details.addEventListener("toggle", fill);
    fill();
    item.append(details);
}
