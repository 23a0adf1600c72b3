// Operators: where host and device time goes by operator, by name or by name and input shape, down to the call stack.

import { shareBars } from "../charts";
import type { Data } from "../data";
import { h, picker, section } from "../dom";
import { Table, type TableColumn } from "../table";
import type { Cell, OperationPies, OperationTable } from "../types";

const TITLES: Record<string, string> = {
    name: "Name",
    input_shape: "Input Shape",
    calls: "Calls",
    device_self_duration: "Device Self (us)",
    device_total_duration: "Device Total (us)",
    host_self_duration: "Host Self (us)",
    host_total_duration: "Host Total (us)",
    tc_eligible: "Tensor Cores Eligible",
    tc_self_ratio: "Tensor Cores Self (%)",
    tc_total_ratio: "Tensor Cores Total (%)",
    call_stack: "Call Stack",
};
const PIES = { self: ["device_self_time", "host_self_time"], total: ["device_total_time", "host_total_time"] } as const;

export async function operatorsTab(data: Data, trace: number): Promise<Node[]> {
    const charts = h("div", { class: "grid" });
    const holder = h("div");
    let shapes = false;
    let kind: keyof typeof PIES = "self";
    const showCharts = async (): Promise<void> => {
        const pies = await data.view<OperationPies>(shapes ? "operation_by_shape" : "operation", trace);
        const shown = PIES[kind].map((key) => pies[key]).filter((pie) => pie !== null);
        charts.replaceChildren(...shown.map((pie) => section(pie.title, shareBars(pie.rows, "us"))));
    };
    const showTable = async (): Promise<void> => {
        const table = await data.view<OperationTable>(shapes ? "operation_table_by_shape" : "operation_table", trace);
        const byShape = shapes;
        holder.replaceChildren(operationTable(table, (row) => stackTable(data, trace, row, byShape)));
    };
    const group = picker(
        "Group by",
        [
            { value: "name", label: "Operator" },
            { value: "shape", label: "Operator and input shape" },
        ],
        "name",
        (value) => {
            shapes = value === "shape";
            void showCharts();
            void showTable();
        },
        "operator-group",
    );
    const measure = picker(
        "Charts show",
        [
            { value: "self", label: "Self time" },
            { value: "total", label: "Total time, with children" },
        ],
        "self",
        (value) => {
            kind = value === "total" ? "total" : "self";
            void showCharts();
        },
        "operator-charts",
    );
    await Promise.all([showCharts(), showTable()]);
    return [h("div", { class: "controls no-print" }, group, measure), charts, section("Operators", holder)];
}

function operationTable(table: OperationTable, stacks: (row: Record<string, Cell>) => Promise<Node>): HTMLElement {
    const keys = Object.keys(table.data[0] ?? { name: "" }).filter((key) => key !== "has_call_stack");
    const columns = keys.map((key): TableColumn => ({
        title: TITLES[key] ?? key,
        numeric: typeof table.data[0]?.[key] === "number",
        tooltip: table.metadata.tooltips[key],
        bar: key === table.metadata.sort,
    }));
    const rows = table.data.map((row) => keys.map((key) => row[key] ?? null));
    const anyStack = table.data.some((row) => row["has_call_stack"]);
    return new Table({
        name: "operators",
        columns,
        rows,
        sort: keys.indexOf(table.metadata.sort),
        ...(anyStack && {
            detail: (at: number) => (table.data[at]?.["has_call_stack"] ? () => stacks(table.data[at] ?? {}) : null),
        }),
    }).element;
}

async function stackTable(data: Data, trace: number, row: Record<string, Cell>, shapes: boolean): Promise<Node> {
    const all = await data.view<Record<string, OperationTable>>(shapes ? "operation_stack_by_shape" : "operation_stack", trace);
    const key = shapes ? `${row["name"]}###${row["input_shape"]}` : String(row["name"]);
    const table = all[key];
    if (!table) throw new Error("No call stack was recorded for this operator.");
    const list = h("div", { class: "stacks" });
    for (const entry of table.data) {
        const numbers = Object.keys(entry)
            .filter((name) => typeof entry[name] === "number")
            .map((name) => `${TITLES[name] ?? name}: ${String(entry[name])}`)
            .join(" · ");
        const frames = String(entry["call_stack"] ?? "").split(";");
        list.append(
            h("div", { class: "stack" }, h("p", {}, numbers), h("ol", {}, ...frames.map((frame) => h("li", {}, frame)))),
        );
    }
    return list;
}
