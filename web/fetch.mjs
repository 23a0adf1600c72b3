// What the page is bundled with, where there is node but no npm: packages of the lock file from npm's registry, each held against its
// hash there. Usage: node fetch.mjs LOCK FOLDER
import { execFileSync } from "node:child_process";
import { createHash } from "node:crypto";
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";

const [lock, folder] = process.argv.slice(2);
const fits = (list, here) => !list || list.includes(here);

for (const [place, one] of Object.entries(JSON.parse(readFileSync(lock, "utf8")).packages)) {
    if (!place || one.dev || !fits(one.os, process.platform) || !fits(one.cpu, process.arch)) continue;
    const name = place.replace(/^.*node_modules\//, "");
    const url = `https://registry.npmjs.org/${name}/-/${name.replace(/^.*\//, "")}-${one.version}.tgz`;
    const answer = await fetch(url);
    if (!answer.ok) throw new Error(`${url}: ${answer.status}`);
    const bytes = Buffer.from(await answer.arrayBuffer());
    const [kind, hash] = one.integrity.split("-");
    if (createHash(kind).update(bytes).digest("base64") !== hash) throw new Error(`${url}: it is not what the lock file names`);
    const target = join(folder, place);
    mkdirSync(target, { recursive: true });
    writeFileSync(join(target, "package.tgz"), bytes);
    execFileSync("tar", ["-xzf", "package.tgz", "--strip-components=1"], { cwd: target });
}
