// Light or dark: what the system says unless the reader chooses. Canvases are told, because they copy colours when they draw.

const root = document.documentElement;
const system = matchMedia("(prefers-color-scheme: dark)");
const watchers = new Map<Element, () => void>();
let chosen: "light" | "dark" | null = null;

export function isDark(): boolean {
    return chosen ? chosen === "dark" : system.matches;
}

function apply(dark: boolean): void {
    root.dataset["theme"] = dark ? "dark" : "light";
    cache.clear();
    for (const [element, redraw] of watchers) {
        if (element.isConnected) redraw();
        else watchers.delete(element);
    }
}

/** Calls `redraw` whenever the colours change, as long as `element` is in the page. */
export function onTheme(element: Element, redraw: () => void): void {
    watchers.set(element, redraw);
}

const cache = new Map<string, string>();

/** The present value of a colour variable of the style. */
export function colour(variable: string): string {
    let value = cache.get(variable);
    if (value === undefined) {
        value = getComputedStyle(root).getPropertyValue(variable).trim() || "#888888";
        cache.set(variable, value);
    }
    return value;
}

export function toggleTheme(): void {
    chosen = isDark() ? "light" : "dark";
    try {
        localStorage.setItem("quern-theme", chosen);
    } catch {
        // A page from disk may have no storage; the choice then lasts as long as the page.
    }
    apply(isDark());
}

export function startTheme(): void {
    try {
        const kept = localStorage.getItem("quern-theme");
        if (kept === "light" || kept === "dark") chosen = kept;
    } catch {
        // As above.
    }
    apply(isDark());
    system.addEventListener("change", () => apply(isDark()));
    // Paper is white.
    addEventListener("beforeprint", () => apply(false));
    addEventListener("afterprint", () => apply(isDark()));
}
