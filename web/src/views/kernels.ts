// Kernels: device time by kernel, alone or with the operator that launched it, and how much of it used tensor cores.

import { shareBars } from "../charts";
import type { Data } from "../data";
import { h, picker, section } from "../dom";
import { number, percent } from "../format";
import { columnsOf, Table } from "../table";
import type { KernelPie, KernelTable } from "../types";

export async function kernelsTab(data: Data, trace: number): Promise<Node[]> {
    const pie = await data.view<KernelPie>("kernel", trace);
    const cores = await data.maybe<KernelPie>("kernel_tc_pie", trace);
    const charts = h("div", { class: "grid" }, section("Total time (us)", shareBars(pie.total.rows, "us")));
    if (cores) charts.append(section("Tensor cores", coreShares(cores)));
    const holder = h("div");
    const show = async (view: string): Promise<void> => {
        const table = await data.view<KernelTable>(view, trace);
        const { sort } = table.metadata;
        const columns = columnsOf(table.data.columns, sort);
        const rows = table.data.rows;
        holder.replaceChildren(
            new Table({ name: "kernels", columns, rows, sort: columns.findIndex((column) => column.title === sort) }).element,
        );
    };
    const group = picker(
        "Group by",
        [
            { value: "kernel_table", label: "Kernel" },
            { value: "kernel_table_by_op", label: "Kernel and operator" },
        ],
        "kernel_table",
        (view) => void show(view),
        "kernel-group",
    );
    await show("kernel_table");
    return [charts, section("Kernels", h("div", { class: "controls no-print" }, group), holder)];
}

function coreShares(cores: KernelPie): HTMLElement {
    const list = h("ol", { class: "shares" });
    cores.total.rows.forEach(([name, share], at) => {
        const fill = h("span", { class: "fill" });
        fill.style.width = `${100 * share}%`;
        fill.style.background = `var(${at === 0 ? "--c3" : "--c8"})`;
        list.append(
            h(
                "li",
                {},
                h("span", { class: "name" }, name),
                h("span", { class: "value", title: number(share) }, percent(share)),
                h("span", { class: "track" }, fill),
            ),
        );
    });
    return list;
}
