// A checkpointed job written from docs/job-contract.md alone, with nothing but Node.
//
// It knows the three files of the contract and none of perdure's own fields and dot files. Node has
// no flock: start it as `flock -n DIR/.lock node job.mjs ...`, and nobody else has the job open.
// `job.py` is the same in Python. Used as a program:
//
//     node job.mjs open DIR NAME                open it; print what is done, the cursor, the errors
//     node job.mjs run DIR NAME FROM TO [--fail=N,N...] [--tear-at=N]
//
// `run` does the items FROM to TO - 1 that are not done. Those of `--fail` fail; at the one of
// `--tear-at` half of its line is written and the process is gone.

import { createHash } from "node:crypto";
import fs from "node:fs";
import path from "node:path";

const HASH = /^[0-9a-f]{16}$/;
const RESERVED = ["_hash", "_key", "_at", "_item"];
const strict = new TextDecoder("utf-8", { fatal: true }); // drops a byte order mark, too

const itemHash = (key) => createHash("sha256").update(key, "utf8").digest("hex").slice(0, 16);
const now = () => new Date().toISOString();
const isObject = (value) => value !== null && typeof value === "object" && !Array.isArray(value);

function syncDir(directory) {
  const descriptor = fs.openSync(directory, "r");
  fs.fsyncSync(descriptor);
  fs.closeSync(descriptor);
}

function replace(target, text) {
  const temp = path.join(path.dirname(target), `.${path.basename(target)}.tmp-${process.pid}`);
  const descriptor = fs.openSync(temp, "w");
  fs.writeFileSync(descriptor, text);
  fs.fsyncSync(descriptor);
  fs.closeSync(descriptor);
  fs.renameSync(temp, target);
  syncDir(path.dirname(target));
}

// [hash, key, at] of the finding on a line; [] for a blank line, null for a bad one.
function judge(bytes) {
  try {
    const text = strict.decode(bytes);
    if (/^[ \t\r]*$/.test(text)) return [];
    const found = JSON.parse(text);
    if (!isObject(found)) return null;
    const { _key: key, _hash: hash } = found;
    const at = typeof found._at === "string" ? found._at : "";
    if (typeof key === "string" && key.isWellFormed()) return [itemHash(key), key, at];
    return typeof hash === "string" && HASH.test(hash) ? [hash, hash, at] : null;
  } catch {
    return null;
  }
}

// As ASCII JSON in a code span: no text of an item can start a line, a heading or a link.
function shown(value) {
  const escaped = (unit) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, "0")}`;
  const text = JSON.stringify(value).replace(/[^\x20-\x7e]/g, escaped);
  return `\`${text.slice(0, 200).replaceAll("`", "'")}\``;
}

// The file split at line feeds, and at nothing else.
function linesOf(data) {
  const lines = [];
  for (let start = 0, end; start <= data.length; start = end + 1) {
    end = data.indexOf(10, start);
    if (end < 0) end = data.length;
    lines.push(data.subarray(start, end));
  }
  return lines;
}

class CheckpointedJob {
  constructor(directory, name) {
    this.directory = path.resolve(directory);
    this.name = name;
    this.statePath = path.join(this.directory, "state.json");
    const first = fs.mkdirSync(this.directory, { recursive: true });
    for (let made = this.directory; first; made = path.dirname(made)) {
      syncDir(path.dirname(made));
      if (made === first) break;
    }
    this.readState();
    this.readLog();
    for (const hash of this.errors.keys()) if (this.completed.has(hash)) this.errors.delete(hash);
    this.checkpoint();
  }

  readState() {
    Object.assign(this, { completed: new Map(), errors: new Map(), cursor: null });
    Object.assign(this, { resumes: 0, startedAt: now(), finishedAt: null });
    let state;
    try {
      state = JSON.parse(strict.decode(fs.readFileSync(this.statePath)));
      const valid =
        isObject(state) &&
        Number.isInteger(state.version) &&
        typeof state.job === "string" &&
        isObject(state.completed) &&
        Object.keys(state.completed).every((hash) => HASH.test(hash)) &&
        state.errors.every((entry) => Number.isInteger(entry.attempts) && HASH.test(entry.hash)) &&
        Number.isInteger(state.stats.resumes);
      if (!valid) throw new TypeError("not a state of this contract");
    } catch (error) {
      if (error.code === "ENOENT") return;
      fs.renameSync(this.statePath, `${this.statePath}.corrupt-${now().replace(/[-:.]/g, "")}`);
      return;
    }
    if (state.job !== this.name || state.version !== 1) {
      throw new Error(`this is the job ${JSON.stringify(state.job)}, version ${state.version}`);
    }
    this.completed = new Map(Object.entries(state.completed));
    this.errors = new Map(state.errors.map((entry) => [entry.hash, entry]));
    this.cursor = state.cursor ?? null;
    this.resumes = state.stats.resumes + 1;
    this.startedAt = state.started_at;
    this.finishedAt = state.finished_at ?? null;
  }

  // Cut what cannot be read at the end, make the rest durable, and only then believe it.
  readLog() {
    const file = path.join(this.directory, "findings.jsonl");
    this.log = fs.openSync(file, "a+");
    const data = fs.readFileSync(file);
    const lines = linesOf(data);
    const judged = lines.map(judge);
    const last = judged.findLastIndex((seen) => seen?.length);
    let end = 0;
    for (let number = 0; number <= last; number += 1) {
      if (judged[number] === null) {
        console.error(`line ${number + 1}, byte ${end}: not a finding`);
      }
      end += lines[number].length + 1;
    }
    if (end < data.length) fs.ftruncateSync(this.log, end);
    else if (end > data.length) fs.writeSync(this.log, "\n");
    fs.fsyncSync(this.log);
    syncDir(this.directory);
    const findings = judged.filter((seen) => seen?.length);
    for (const [hash, , at] of findings) {
      if (!this.completed.has(hash)) this.completed.set(hash, at);
    }
    this.lastKeys = findings.slice(-20).map(([, key]) => key);
  }

  isDone(key) {
    return this.completed.has(itemHash(key));
  }

  recordFinding(key, payload) {
    const reserved = RESERVED.filter((name) => name in payload);
    if (reserved.length) throw new Error(`reserved: ${reserved}`);
    if (this.isDone(key)) return;
    const at = now();
    const line = { ...payload, _hash: itemHash(key), _key: key, _at: at };
    this.append(Buffer.from(`${JSON.stringify(line)}\n`));
    this.completed.set(itemHash(key), at);
    this.errors.delete(itemHash(key));
    this.finishedAt = null;
    this.lastKeys = [...this.lastKeys, key].slice(-20);
    this.checkpoint();
  }

  append(data) {
    for (let done = 0; done < data.length; ) done += fs.writeSync(this.log, data, done);
    fs.fsyncSync(this.log);
  }

  recordError(key, error) {
    const hash = itemHash(key);
    const attempts = (this.errors.get(hash)?.attempts ?? 0) + 1;
    this.errors.delete(hash);
    this.errors.set(hash, { key, hash, error, attempts, last_at: now() });
    this.finishedAt = null;
    this.checkpoint();
  }

  setCursor(value) {
    this.cursor = value;
  }

  finish() {
    this.finishedAt = now();
    this.checkpoint();
  }

  checkpoint() {
    const state = {
      job: this.name,
      version: 1,
      started_at: this.startedAt,
      updated_at: now(),
      cursor: this.cursor,
      completed: Object.fromEntries(this.completed),
      errors: [...this.errors.values()],
      stats: {
        processed: this.completed.size,
        failed: this.errors.size,
        resumes: this.resumes,
      },
      finished_at: this.finishedAt,
    };
    replace(this.statePath, JSON.stringify(state));
    const { processed, failed, resumes } = state.stats;
    const errors = state.errors.slice(-10);
    const summary = [
      `# Job ${shown(this.name)}: ${this.finishedAt ? "finished" : "open"}`,
      "",
      `Started ${this.startedAt}, as of ${state.updated_at}.`,
      `${processed} done, ${failed} failed, resumed ${resumes} times.`,
      `Cursor: ${shown(this.cursor)}`,
      "",
      ...errors.map((entry) => `- failed ${entry.attempts} times: ${shown(entry.key)}`),
      ...this.lastKeys.map((key) => `- done: ${shown(key)}`),
      "",
      "To go on, start the job again and read nothing but this file.",
      "",
    ];
    replace(path.join(this.directory, "SUMMARY.md"), summary.join("\n"));
  }
}

const keyOf = (number) => `https://例え.example/página/${number}?q=é`;

function run(job, first, end, options) {
  const failing = new Set((options.fail ?? "").split(",").filter(Boolean).map(Number));
  for (let number = first; number < end; number += 1) {
    const key = keyOf(number);
    if (job.isDone(key)) continue;
    if (number === Number(options["tear-at"])) {
      const line = Buffer.from(JSON.stringify({ n: number, _hash: itemHash(key), _key: key }));
      job.append(line.subarray(0, line.length / 2));
      process.kill(process.pid, "SIGKILL");
    }
    if (failing.has(number)) job.recordError(key, `item ${number} failed\n# as it was told to`);
    else job.recordFinding(key, { n: number, by: "node", text: "zwölf \u2028 €" });
    job.setCursor({ last: number });
  }
  job.finish();
}

const [verb, directory, name, ...rest] = process.argv.slice(2);
const options = Object.fromEntries(
  rest.filter((word) => word.startsWith("--")).map((word) => word.slice(2).split("=")),
);
const numbers = rest.filter((word) => !word.startsWith("--")).map(Number);
const job = new CheckpointedJob(directory, name);
if (verb === "run") run(job, numbers[0], numbers[1], options);
const errors = [...job.errors.values()].map(({ key, hash, attempts }) => ({ key, hash, attempts }));
const completed = [...job.completed.keys()].sort();
console.log(JSON.stringify({ completed, cursor: job.cursor, errors }));
