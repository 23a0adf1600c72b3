// Memory: the curve of each device, which operators took it, and every allocation with its life.

import { lines } from "../charts";
import type { Data } from "../data";
import { h, note, picker, section } from "../dom";
import { columnsOf, Table } from "../table";
import type { Cell, DeviceTable, MemoryCurve } from "../types";

type Range = [number, number] | null; // in the curve's unit, from the start of the trace

export async function memoryTab(data: Data, trace: number): Promise<Node[]> {
    const stats = await data.view<DeviceTable>("memory", trace);
    const curve = await data.maybe<MemoryCurve>("memory_curve", trace);
    const events = await data.maybe<DeviceTable>("memory_events", trace);
    const devices = [...new Set([...(curve?.metadata.devices ?? []), ...Object.keys(stats.rows)])].sort();
    const curveBox = h("div");
    const statsBox = h("div");
    const eventsBox = h("div");
    let device = stats.metadata.default_device;
    if (!devices.includes(device)) device = devices[0] ?? "CPU";

    const showTables = async (range: Range): Promise<void> => {
        let table = stats;
        if (range && curve && data.live) {
            const { first_ts, time_factor } = curve.metadata;
            const [start_ts, end_ts] = range.map((time) => String(first_ts + time / time_factor)) as [string, string];
            table = (await data.maybe<DeviceTable>("memory", trace, { start_ts, end_ts })) ?? stats;
        }
        statsBox.replaceChildren(statsTable(table, device));
        if (range && !data.live)
            statsBox.prepend(
                note("These sums cover the whole trace; quern profile serve can restrict them to the chosen time."),
            );
        eventsBox.replaceChildren(
            events ? eventsTable(events, device, range) : note("The trace has no addresses in its memory records."),
        );
    };
    const show = (): void => {
        curveBox.replaceChildren(curveChart(curve, device, (range) => void showTables(range)));
        void showTables(null);
    };
    const choose = picker(
        "Device",
        devices.map((name) => ({ value: name, label: name })),
        device,
        (value) => {
            device = value;
            show();
        },
        "memory-device",
    );
    show();
    return [
        h("div", { class: "controls no-print" }, choose),
        section("Memory over time", curveBox),
        section("By operator", statsBox),
        section("Allocations", eventsBox),
    ];
}

function curveChart(curve: MemoryCurve | null, device: string, onRange: (range: Range) => void): Node {
    const points = curve?.rows[device];
    if (!curve || !points || points.length === 0)
        return note(
            "The trace holds no addresses or totals for this device, so there is no curve (before PyTorch 1.10 none has them).",
        );
    const { time_metric, memory_metric, peaks } = curve.metadata;
    const chart = lines(
        points.map((point) => point[0]),
        [
            { name: "Reserved", colour: "--c2", values: points.map((point) => point[2]) },
            { name: "Allocated", colour: "--c1", values: points.map((point) => point[1]), fill: true },
        ],
        {
            xLabel: `Time (${time_metric})`,
            yLabel: `Memory (${memory_metric})`,
            height: 260,
            onSelect: (from, to) => onRange(from === null || to === null ? null : [from, to]),
        },
    );
    return h(
        "div",
        {},
        h("p", { class: "peak" }, peaks[device] ?? ""),
        chart,
        h("p", { class: "hint no-print" }, "Double-click the curve to see all of it again."),
    );
}

function statsTable(table: DeviceTable, device: string): Node {
    const rows = table.rows[device];
    if (!rows) return note(`No operator took or gave back memory of ${device}.`);
    const columns = columnsOf(table.columns, table.metadata.sort);
    return new Table({
        name: "operators",
        columns,
        rows,
        sort: columns.findIndex((column) => column.title === table.metadata.sort),
    }).element;
}

function eventsTable(table: DeviceTable, device: string, range: Range): Node {
    const all = table.rows[device];
    if (!all) return note(`The trace has no allocations with an address on ${device}.`);
    const alive = (row: Cell[]): boolean => {
        if (!range) return true;
        const born = row[2] === null ? -Infinity : Number(row[2]);
        const gone = row[3] === null ? Infinity : Number(row[3]);
        return born <= range[1] && gone >= range[0];
    };
    const columns = columnsOf(table.columns, "Size (KB)");
    return new Table({ name: "allocations", columns, rows: all.filter(alive), sort: 1 }).element;
}
