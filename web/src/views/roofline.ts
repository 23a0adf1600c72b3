// Roofline: what each operator reaches in FLOP/s and bytes/s against what this machine was measured to give.

import { scatter, type Dot, type Roof } from "../charts";
import type { Data } from "../data";
import { h, note, section } from "../dom";
import { brief, duration } from "../format";
import { columnsOf, Table } from "../table";
import type { SortedGrid } from "../types";

interface RooflineView extends SortedGrid {
    metadata: { title: string; sort: string; peak_gflops: number | null; peak_gbps: number | null; ridge: number | null };
}

/** What a dot's colour says. */
const ARITHMETIC = { name: "Bound by arithmetic", colour: "--c4" };
const MEMORY = { name: "Bound by memory", colour: "--c1" };
const UNKNOWN = { name: "Not known: no measured limits", colour: "--c1" };

export async function rooflineTab(data: Data, trace: number): Promise<Node[]> {
    const view = await data.view<RooflineView>("roofline", trace);
    const { peak_gflops, peak_gbps, ridge, sort } = view.metadata;
    const at = (name: string): number => view.columns.findIndex((column) => column.name === name);
    const [shape, time, flops, intensity, limit, bound] = [
        "Input Shape",
        "Time (us)",
        "GFLOP/s",
        "FLOP/byte",
        "Limit (%)",
        "Bound by",
    ].map(at) as [number, number, number, number, number, number];
    const dots: Dot[] = [];
    const kinds = new Set<typeof MEMORY>();
    for (const row of view.rows) {
        const [x, y] = [Number(row[intensity]), Number(row[flops])];
        if (!(x > 0) || !(y > 0)) continue; // no place on logarithmic axes
        const share = row[limit] === null ? "" : `, ${brief(Number(row[limit]))} % of its limit`;
        const kind = row[bound] === "arithmetic" ? ARITHMETIC : row[bound] ? MEMORY : UNKNOWN;
        kinds.add(kind);
        dots.push({
            x,
            y,
            colour: kind.colour,
            name: `${row[0]} ${row[shape]}, ${duration(Number(row[time]))}${share}`,
        });
    }
    const facts = h("div", { class: "cards" });
    const fact = (title: string, value: number | null, unit: string): void => {
        if (value !== null)
            facts.append(h("div", { class: "fact" }, h("span", {}, title), h("strong", {}, `${brief(value)} ${unit}`)));
    };
    fact("Peak arithmetic, measured", peak_gflops, "GFLOP/s");
    fact("Peak memory, measured", peak_gbps, "GB/s");
    fact("Ridge", ridge, "FLOP/byte");
    const roofs: Roof[] = [];
    if (peak_gflops !== null && peak_gbps !== null)
        roofs.push({ name: "Limit of this machine", colour: "--c5", slope: peak_gbps, flat: peak_gflops });
    const chart = section(
        view.metadata.title,
        dots.length ? scatter(dots, [...kinds], roofs, "FLOP/byte", "GFLOP/s") : note("No operator does arithmetic."),
    );
    if (roofs.length === 0)
        chart.append(note("The trace does not hold the machine's limits, so there is no roof to compare with."));
    const columns = columnsOf(view.columns, sort);
    const table = new Table({ name: "operators", columns, rows: view.rows, sort: at(sort) });
    return [facts, chart, section("Operators", table.element)];
}
