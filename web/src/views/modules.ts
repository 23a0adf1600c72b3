// Modules: the model as a tree, each part with its host and device time; and time by model part where the trace names parts.

import type { Data } from "../data";
import { NoView } from "../data";
import { h, note, section } from "../dom";
import { number } from "../format";
import { columnsOf, Table } from "../table";
import type { Cell, ModuleRow, ModuleView, SortedGrid } from "../types";

export async function modulesTab(data: Data, trace: number): Promise<Node[]> {
    const parts = await data.maybe<SortedGrid>("parts", trace);
    const nodes: Node[] = [];
    try {
        const view = await data.view<ModuleView>("module", trace);
        nodes.push(section("Modules", moduleTree(view)));
    } catch (fault) {
        if (!(fault instanceof NoView)) throw fault;
        if (!parts) throw fault;
    }
    if (parts) {
        const columns = columnsOf(parts.columns, parts.metadata.sort);
        const sort = columns.findIndex((column) => column.title === parts.metadata.sort);
        nodes.push(section(parts.metadata.title, new Table({ name: "parts", columns, rows: parts.rows, sort }).element));
    }
    return nodes;
}

function moduleTree(view: ModuleView): Node {
    if (view.data.length === 0) return note("The trace names no modules.");
    const body = h("tbody");
    const most = view.data.reduce((sum, row) => Math.max(sum, row.device_duration || row.host_duration), 0) || 1;
    for (const row of view.data) addModule(body, view, row, 0, most, null);
    const head = h(
        "tr",
        {},
        ...view.columns.map((column) =>
            h(
                "th",
                { class: column.type === "number" ? "num" : "" },
                /Time$/.test(column.name) ? `${column.name} (us)` : column.name,
            ),
        ),
        h("th", { class: "num" }, "Average (us)"),
    );
    const filter = h("input", {
        type: "search",
        placeholder: "Filter modules",
        "aria-label": "Filter modules",
        oninput: () => narrow(body, filter.value),
    });
    return h(
        "div",
        { class: "table" },
        h("div", { class: "bar no-print" }, filter),
        h(
            "div",
            { class: "scroll", tabindex: 0, role: "region", "aria-label": "modules" },
            h("table", { class: "tree" }, h("thead", {}, head), body),
        ),
    );
}

function addModule(
    body: HTMLElement,
    view: ModuleView,
    row: ModuleRow,
    depth: number,
    most: number,
    parent: HTMLElement | null,
): void {
    const tr = h("tr", { "data-depth": depth });
    const label = h("td", { class: "text", title: row.name });
    label.style.paddingLeft = `${8 + depth * 18}px`;
    if (row.children.length) {
        const twist = h(
            "button",
            { type: "button", class: "twist", "aria-expanded": "true", onclick: () => fold(tr, twist) },
            "▾",
        );
        label.append(twist);
    } else label.append(h("span", { class: "twist" }));
    label.append(row.name, h("small", {}, ` #${row.id}`));
    tr.append(label);
    for (const column of view.columns.slice(1)) {
        const value = Number((row as unknown as Record<string, Cell>)[column.key ?? ""] ?? 0);
        const cell = h("td", { class: "num" }, number(value));
        if (column.key === "device_duration" || (column.key === "host_duration" && row.device_duration === 0)) {
            cell.classList.add("share");
            cell.style.setProperty("--share", `${(100 * value) / most}%`);
        }
        tr.append(cell);
    }
    tr.append(h("td", { class: "num" }, number(row.avg_duration)));
    if (parent && depth > 3) tr.hidden = true; // deep models open folded
    body.append(tr);
    for (const child of row.children) addModule(body, view, child, depth + 1, most, tr);
}

/** Hides or shows everything below a row: the rows after it that lie deeper. */
function fold(tr: HTMLElement, twist: HTMLElement): void {
    const depth = Number(tr.dataset["depth"]);
    const open = twist.getAttribute("aria-expanded") === "true";
    twist.setAttribute("aria-expanded", String(!open));
    twist.textContent = open ? "▸" : "▾";
    for (let next = tr.nextElementSibling; next instanceof HTMLElement; next = next.nextElementSibling) {
        const deeper = Number(next.dataset["depth"]);
        if (deeper <= depth) break;
        if (open) next.hidden = true;
        else if (deeper === depth + 1) {
            next.hidden = false;
            const inner = next.querySelector<HTMLElement>("button.twist");
            if (inner) {
                inner.setAttribute("aria-expanded", "false");
                inner.textContent = "▸";
            }
        }
    }
}

function narrow(body: HTMLElement, text: string): void {
    const wanted = text.trim().toLowerCase();
    for (const row of Array.from(body.children) as HTMLElement[])
        row.hidden = wanted !== "" && !(row.firstElementChild?.textContent ?? "").toLowerCase().includes(wanted);
}
