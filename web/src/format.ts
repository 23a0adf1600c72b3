// Numbers and times as a person reads them.

const whole = new Intl.NumberFormat("en-US", { maximumFractionDigits: 0 });
const exact = new Intl.NumberFormat("en-US", { maximumFractionDigits: 6 });

/** Every digit the view gives (to six places), with separators. */
export function number(value: number): string {
    if (Math.abs(value) >= 1e15) return String(value);
    return Number.isInteger(value) ? whole.format(value) : exact.format(value);
}

/** About four significant digits. */
export function brief(value: number): string {
    if (!Number.isFinite(value)) return "–";
    const size = Math.abs(value);
    if (size >= 1000 && size < 1e15) return whole.format(value);
    return String(Number(value.toPrecision(4)));
}

export function percent(share: number): string {
    if (!Number.isFinite(share)) return "–";
    const value = share * 100;
    return `${Math.abs(value) >= 10 ? value.toFixed(1) : value.toFixed(2)} %`.replace("-", "−");
}

const TIME_UNITS: [number, string][] = [
    [1e6, "s"],
    [1e3, "ms"],
    [1, "µs"],
    [1e-3, "ns"],
];

/** A duration given in microseconds, in the unit that suits it. */
export function duration(us: number): string {
    if (us === 0) return "0 µs";
    const size = Math.abs(us);
    const [scale, unit] = TIME_UNITS.find(([limit]) => size >= limit) ?? [1e-3, "ns"];
    return `${Number((us / scale).toPrecision(4))} ${unit}`;
}

/** The unit in which values up to `largest` microseconds are shown, and what to divide by. */
export function timeScale(largest: number): { unit: string; scale: number } {
    const [scale, unit] = TIME_UNITS.find(([limit]) => Math.abs(largest) >= limit) ?? [1, "µs"];
    return { unit, scale };
}

export function bytes(value: number): string {
    const units = ["B", "KiB", "MiB", "GiB", "TiB"];
    let at = 0;
    let rest = value;
    while (Math.abs(rest) >= 1024 && at < units.length - 1) {
        rest /= 1024;
        at++;
    }
    return `${Number(rest.toPrecision(4))} ${units[at]}`;
}

export function signed(value: number): string {
    return value > 0 ? `+${number(value)}` : number(value).replace("-", "−");
}

export function csvField(value: unknown): string {
    const text = value === null || value === undefined ? "" : String(value);
    return /[",\n\r]/.test(text) ? `"${text.replace(/"/g, '""')}"` : text;
}
