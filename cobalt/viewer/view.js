// The page of `cobalt view`. Every text of a file is set as text, never as HTML.
"use strict";

const ROW_HEIGHT = 30;
const OPEN_CHUNKS = 24;
const LONGEST_DIFFERENCE = 4e6; // cells of the table of common lines
const STRONG = 0.55; // a rate from which on a cell's colour needs the other text colour
const UNCHANGED_SHOWN = 3; // lines around a change
const byId = (id) => document.getElementById(id);

/** An element. Properties that begin with "on" are listeners; children are elements or texts. */
function make(tag, properties = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name.startsWith("--")) element.style.setProperty(name, value);
    else if (value === true) element.setAttribute(name, "");
    else if (value !== false && value != null) element.setAttribute(name, value);
  }
  element.append(...children.flat(Infinity).filter((child) => child != null));
  return element;
}

/** The largest number of any of the items; Math.max would take a hundred thousand of them for arguments. */
const largest = (items, numberOf) => items.reduce((most, item) => Math.max(most, numberOf(item)), 0);

// ---- Packed records

const parsed = new Promise((done) => document.addEventListener("DOMContentLoaded", done));

async function unpack(id) {
  if (!byId(id)) await parsed;
  const packed = byId(id).textContent;
  const bytes = Uint8Array.fromBase64?.(packed) ?? Uint8Array.from(atob(packed), (digit) => digit.charCodeAt(0));
  return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"))).text();
}

const chunks = new Map(); // the last ones that were opened: promises of their lines

/** The record at [chunk, line]. */
async function record([chunk, line]) {
  const lines = chunks.get(chunk) ?? unpack(`chunk-${chunk}`).then((text) => text.split("\n"));
  chunks.delete(chunk);
  chunks.set(chunk, lines);
  if (chunks.size > OPEN_CHUNKS) chunks.delete(chunks.keys().next().value);
  return JSON.parse((await lines)[line]);
}

/** A trajectory: what is known of its problem, and its turns. */
async function trajectory(problem, sample) {
  const isSplit = problem.pieces.length > 1; // a row for each sample
  const piece = await record(problem.pieces[isSplit ? sample : 0]);
  return { ...piece, turns: piece.turns_N[isSplit ? 0 : sample] };
}

// ---- The index

let files = [];
let rows = []; // problems, each with its part of every file (null: not there)
let turns = []; // 0, 1, ... up to the last turn of any trajectory

function readIndex(text) {
  files = JSON.parse(text).files;
  const byKey = new Map();
  files.forEach((file, number) => {
    file.colour = files.length === 2 && number === 0 ? "grey" : "ours"; // base and trained
    for (const problem of file.problems) {
      if (!byKey.has(problem.key)) byKey.set(problem.key, { ...problem, of: files.map(() => null) });
      byKey.get(problem.key).of[number] = problem;
      for (const sample of problem.samples) describe(sample);
    }
  });
  rows = [...byKey.values()];
  turns = [...Array(largest(rows.flatMap(samplesOf), (sample) => sample.turns.length)).keys()];
  rows.forEach((row, number) => (row.label ||= String(number + 1))); // dumps have no ids
  for (const row of rows) row.searched = `${row.label} ${row.title} ${row.difficulty}`.toLowerCase();
}

/** What filters ask of a sample. */
function describe(sample) {
  const taken = sample.turns.map((turn) => turn ?? [null, ""]);
  sample.solvedAt = taken.findIndex(([rate]) => rate === 1);
  sample.isInfra = taken.some(([, verdict]) => verdict === "infra_error");
  sample.gaveUp = taken.some(([rate], turn) => turn > 0 && taken[turn - 1][0] === 1 && rate !== null && rate < 1);
  sample.isJudged = taken.some(([rate]) => rate !== null);
  sample.verdicts = new Set(taken.map(([rate, verdict]) => verdictOf(rate, verdict)));
}

/** A verdict as people read it; hidden tests may fail a program that passes all that is shown. */
function verdictOf(rate, verdict) {
  if (verdict === "infra_error") return "not judged";
  if (rate === 1) return "right";
  if (verdict === "passed" && rate !== null) return "fails hidden tests only";
  return (verdict || (rate === null ? "" : "wrong")).replaceAll("_", " ");
}

// ---- Filters

const asked = {}; // by select: what a trajectory is asked
let searched = [];
let foundInTexts = null; // rows

/** Selects: a name, what is asked of a sample for each option. */
function filterChoices() {
  const all = files.flatMap((file) => file.problems.flatMap((problem) => problem.samples));
  const outcomes = turns.map((turn) => [`first right at turn ${turn}`, (sample) => sample.solvedAt === turn]);
  outcomes.push(["never right", (sample) => sample.isJudged && sample.solvedAt < 0]);
  outcomes.push(["gave up a right program", (sample) => sample.gaveUp]);
  outcomes.push(["not judged (infrastructure)", (sample) => sample.isInfra]);
  const verdicts = [...new Set(all.flatMap((sample) => [...sample.verdicts]))].filter(Boolean).sort();
  const tags = [...new Set(all.flatMap((sample) => sample.tags))].sort();
  const choices = {
    outcome: outcomes,
    verdict: verdicts.map((name) => [`a turn: ${name}`, (sample) => sample.verdicts.has(name)]),
    category: tags.map((name) => [name, (sample) => sample.tags.includes(name)]),
  };
  for (const options of Object.values(choices)) for (const option of options) option.push(all.filter(option[1]).length);
  return choices;
}

function matches(sample) {
  return Object.values(asked).every((asks) => asks(sample));
}

function samplesOf(row) {
  return row.of.flatMap((problem) => problem?.samples ?? []);
}

const ORDERS = {
  "file order": null,
  "lowest last turn": (row) => lastShare(row.of.findLast(Boolean)),
  "most gained over turns": (row) => firstShare(row.of.findLast(Boolean)) - lastShare(row.of.findLast(Boolean)),
  "most gained by the second file": (row) => -(difference(row) ?? -2),
  "most lost by the second file": (row) => difference(row) ?? 2,
};
const MEASURES = { "right programs, %": (rate) => Number(rate === 1), "tests passed, %": (rate) => rate };
let measure = MEASURES["right programs, %"];

/** The rates of a problem's samples at a turn, of those that have one. */
const ratesAt = (problem, turn) =>
  problem.samples.map((sample) => sample.turns[turn]?.[0]).filter((rate) => rate != null);
/** Their mean in [0, 1]; null if there is none. */
const share = (rates) => (rates.length ? rates.map(measure).reduce((a, b) => a + b) / rates.length : null);
const sharesOf = (problem) => turns.map((turn) => share(ratesAt(problem, turn)));
const firstShare = (problem) => sharesOf(problem).find((value) => value !== null) ?? 0;
const lastShare = (problem) => sharesOf(problem).findLast((value) => value !== null) ?? 0;

/** At the last turn that both files have, second minus first. */
function difference(row) {
  if (!row.of[0] || !row.of[1]) return null;
  const [first, second] = row.of.map(sharesOf);
  const turn = first.findLastIndex((value, turn) => value !== null && second[turn] !== null);
  return turn < 0 ? null : second[turn] - first[turn];
}

/** Their differences, of those that both files have. */
const differencesOf = (rows) => rows.map(difference).filter((value) => value !== null);

// ---- The overview

let shown = []; // rows that match, in order
let chosen = 0;
let order = null;

/** The rows whose programs and other texts hold the words of the search. Opens every chunk. */
async function searchTexts() {
  const escaped = (character) => `\\u${character.charCodeAt(0).toString(16).padStart(4, "0")}`;
  const inJson = (word) => JSON.stringify(word).slice(1, -1).replace(/[^ -~]/g, escaped); // as it stands in chunks
  const wanted = searched;
  const words = wanted.map(inJson);
  byId("count").textContent = "Searching all texts …";
  const places = new Set();
  for (let chunk = 0; byId(`chunk-${chunk}`); chunk++) {
    const lines = (await unpack(`chunk-${chunk}`)).toLowerCase().split("\n");
    lines.forEach((line, number) => words.every((word) => line.includes(word)) && places.add(`${chunk}/${number}`));
  }
  if (searched !== wanted) return; // typed on meanwhile
  const isFound = (problem) => problem?.pieces.some((place) => places.has(place.join("/")));
  foundInTexts = new Set(rows.filter((row) => row.of.some(isFound)));
  update();
}

function update() {
  const asksSamples = Object.keys(asked).length > 0;
  const isFound = (row) => foundInTexts?.has(row) ?? searched.every((word) => row.searched.includes(word));
  shown = rows.filter((row) => isFound(row) && (!asksSamples || samplesOf(row).some(matches)));
  if (order) {
    const keys = new Map(shown.map((row) => [row, order(row)]));
    shown.sort((a, b) => keys.get(a) - keys.get(b));
  }
  chosen = 0;
  const samples = shown.flatMap(samplesOf);
  const matching = asksSamples ? `, ${samples.filter(matches).length.toLocaleString("en")} match` : "";
  const ofAll = shown.length < rows.length ? `${shown.length.toLocaleString("en")} of ` : "";
  const problems = counted(rows.length, "problem");
  const trajectories = counted(samples.length, "trajectory", "trajectories");
  byId("count").textContent = `${ofAll}${problems}, ${trajectories}${matching}`;
  byId("height").style.height = `${shown.length * ROW_HEIGHT}px`;
  byId("list").scrollTop = 0;
  drawColumns();
  drawRows();
}

/** A share as a cell; dark: text on a strong colour. */
function cell(value, title, text = null) {
  if (value === null) return make("span", { class: "cell none", title }, text ?? "–");
  const isDark = value > STRONG ? " dark" : "";
  return make("span", { class: `cell${isDark}`, "--share": value, title }, text ?? Math.round(100 * value));
}

function heat(problem, file) {
  const cells = turns.map((turn) => {
    if (!problem) return cell(null, "not in this file", "");
    const rates = ratesAt(problem, turn);
    const right = rates.filter((rate) => rate === 1).length;
    return cell(share(rates), `${file.name}, turn ${turn}: ${right} of ${rates.length} right`);
  });
  return make("span", { class: `heat ${file.colour}` }, cells);
}

function changeCell(value, title) {
  const points = Math.round(100 * value);
  const text = value === null ? "–" : `${points > 0 ? "+" : points < 0 ? "−" : ""}${Math.abs(points)}`;
  return make("span", { class: "cell change", title: `second file minus first, in points${title}` }, text);
}

function rowElement(label, title, difficulty, samples, heats, properties) {
  const parts = { label, title, difficulty, samples };
  const cells = Object.entries(parts).map(([name, text]) =>
    make("span", { class: name, title: text }, make("bdi", {}, String(text))),
  );
  cells.push(make("span", { class: "heats" }, heats));
  return make("div", { ...properties, class: `row ${properties.class ?? ""}` }, cells);
}

function drawColumns() {
  const numbers = () => make("span", { class: "heat" }, turns.map((turn) => make("span", { class: "cell" }, turn)));
  const whole = files.map((_, number) => ({ samples: shown.flatMap((row) => row.of[number]?.samples ?? []) }));
  const isTwo = files.length === 2;
  const names = [files.map(numbers), isTwo ? make("span", { class: "cell change" }, "Δ") : null];
  const means = [files.map((file, number) => heat(whole[number], file))];
  if (isTwo) {
    const paired = differencesOf(shown);
    const mean = paired.length ? paired.reduce((a, b) => a + b) / paired.length : null;
    means.push(changeCell(mean, `; mean of ${counted(paired.length, "problem")} that both have`));
  }
  const count = whole.map((part) => part.samples.length).join(" / ");
  byId("columns").replaceChildren(
    rowElement("problem", "", "difficulty", "samples", names, {}),
    rowElement("all", "", "", count, means, { class: "all" }),
  );
}

function drawRows() {
  const list = byId("list");
  list.parentElement.style.setProperty("--scrollbar", `${list.offsetWidth - list.clientWidth}px`);
  const first = Math.max(0, Math.floor(list.scrollTop / ROW_HEIGHT) - 5);
  const last = Math.min(shown.length, first + Math.ceil(list.clientHeight / ROW_HEIGHT) + 10);
  const elements = shown.slice(first, last).map((row, offset) => {
    const number = first + offset;
    const heats = files.map((file, which) => heat(row.of[which], file));
    if (files.length === 2) heats.push(changeCell(difference(row), ""));
    const count = row.of.map((problem) => problem?.samples.length ?? 0).join(" / ");
    return rowElement(row.label, row.title, row.difficulty, count, heats, {
      id: `row-${number}`,
      class: number === chosen ? "chosen" : "",
      role: "option",
      "aria-selected": String(number === chosen),
      onclick: () => open(row),
    });
  });
  byId("rows").style.transform = `translateY(${first * ROW_HEIGHT}px)`;
  byId("rows").replaceChildren(...elements);
  list.setAttribute("aria-activedescendant", `row-${chosen}`);
}

function choose(number) {
  chosen = Math.max(0, Math.min(shown.length - 1, number));
  const list = byId("list");
  const top = chosen * ROW_HEIGHT;
  list.scrollTop = Math.max(top + ROW_HEIGHT - list.clientHeight, Math.min(list.scrollTop, top));
  drawRows();
}

// ---- A conversation. Its address is #problem/sample/sample, the samples by file.

let isWhole = false; // whole programs instead of differences
let isUnfolded = false; // thinking

function toggleWhole() {
  isWhole = !isWhole;
  redraw();
}

function toggleThinking() {
  isUnfolded = !isUnfolded;
  redraw();
}

async function redraw() {
  const top = byId("conversation").scrollTop;
  await route();
  byId("conversation").scrollTop = top;
}

function open(row, samples = null) {
  if (!row) return;
  chosen = Math.max(0, shown.indexOf(row));
  samples ??= row.of.map((problem) => Math.max(0, (problem?.samples ?? []).findIndex(matches)));
  location.hash = [encodeURIComponent(row.key), ...samples].join("/");
}

/** The problem and samples that the address names; null: the overview. */
function place() {
  const [key, ...samples] = location.hash.slice(1).split("/");
  const row = rows.find((row) => encodeURIComponent(row.key) === key);
  if (!row) return null;
  const inRange = (problem, sample) => Math.max(0, Math.min((problem?.samples.length ?? 1) - 1, Number(sample) || 0));
  return { row, samples: row.of.map((problem, which) => inRange(problem, samples[which])) };
}

async function route() {
  const where = place();
  byId("overview").hidden = where !== null;
  byId("conversation").hidden = where === null;
  if (where === null) {
    choose(chosen);
    byId("list").focus({ preventScroll: true });
    return;
  }
  const { row, samples } = where;
  const address = location.hash;
  const found = await Promise.all(
    row.of.map((problem, which) => (problem ? trajectory(problem, samples[which]) : null)),
  );
  if (location.hash === address) drawConversation(row, samples, found);
}

function drawConversation(row, samples, found) {
  const number = shown.indexOf(row);
  const neighbour = (text, step) =>
    make("button", { type: "button", disabled: !shown[number + step], onclick: () => open(shown[number + step]) }, text);
  const piece = found.find(Boolean);
  const panels = files.map((file, which) => panel(file, row, which, samples, found[which]));
  const conversation = byId("conversation");
  conversation.replaceChildren(
    make(
      "nav",
      {},
      make("button", { type: "button", onclick: () => (location.hash = "") }, "← all problems"),
      neighbour("previous", -1),
      neighbour("next", 1),
      make("span", { class: "soft" }, `${number + 1} of ${shown.length}`),
      make("button", { type: "button", onclick: toggleWhole }, isWhole ? "differences" : "whole programs"),
      make("button", { type: "button", onclick: toggleThinking }, isUnfolded ? "fold thinking" : "unfold thinking"),
    ),
    make("h2", {}, make("span", { class: "soft" }, row.label), ` ${row.title}`),
    foldedText("Problem", piece.question),
    make("div", { class: `panels${files.length === 2 ? " two" : ""}` }, panels),
  );
  conversation.scrollTop = 0;
  conversation.tabIndex = -1;
  conversation.focus({ preventScroll: true });
}

function panel(file, row, which, samples, found) {
  const problem = row.of[which];
  const title = make("h3", {}, make("span", { class: "file" }, file.name));
  if (!problem) return make("section", { class: `panel ${file.colour}` }, title, make("p", {}, "Not in this file."));
  const buttons = problem.samples.map((sample, number) => {
    const cells = sample.turns.map((turn, index) => sampleCell(turn, index));
    const properties = {
      type: "button",
      class: `sample${matches(sample) ? "" : " unmatched"}`,
      "aria-pressed": String(number === samples[which]),
      "aria-label": `trajectory ${number}`,
      title: `trajectory ${number}`,
      onclick: () => open(row, samples.with(which, number)),
    };
    return make("button", properties, cells);
  });
  const sample = problem.samples[samples[which]];
  title.append(` · trajectory ${samples[which]} `, ...sample.tags.map((tag) => make("span", { class: "tag" }, tag)));
  const taken = found.turns.filter((turn) => turn.taken);
  const shownTurns = taken.map((turn, index) => turnElement(found, turn, found.turns[index - 1], index));
  const strip = make("div", { class: "samples-strip" }, buttons);
  return make("section", { class: `panel ${file.colour}` }, title, strip, shownTurns);
}

function sampleCell(turn, index) {
  const [rate, verdict] = turn ?? [null, ""];
  const title = `turn ${index}: ${verdictOf(rate, verdict) || "no rate"}`;
  if (verdict === "infra_error") return make("span", { class: "cell infra", title }, "×");
  return cell(rate, title, rate === null ? "–" : "");
}

const counted = (count, noun, nouns = `${noun}s`) => `${count.toLocaleString("en")} ${count === 1 ? noun : nouns}`;
const percent = (rate) => `${Math.round(1000 * rate) / 10} %`;
const words = (text) => counted(text.split(/\s+/).filter(Boolean).length, "word");

function turnElement(piece, turn, before, index) {
  const { thinking, prose } = partsOf(turn);
  const usage = turn.usage ?? {};
  const facts = [
    turn.shown_rate !== null && turn.shown_rate !== turn.rate ? `shown tests ${percent(turn.shown_rate)}` : null,
    Object.entries(turn.verdicts).map(([name, count]) => `${count} ${name.replaceAll("_", " ")}`).join(", ") || null,
    usage.completion_tokens != null ? `${usage.completion_tokens.toLocaleString("en")} tokens` : null,
    usage.finish_reason && usage.finish_reason !== "stop" ? `ended by ${usage.finish_reason}` : null,
  ].filter(Boolean);
  const rated = turn.rate === 1 ? "right" : `${percent(turn.rate)} of ${piece.rated_on}`;
  const strength = { class: `rate${turn.rate > STRONG ? " dark" : ""}`, "--share": turn.rate };
  const scores = Object.entries(turn.scores).map(([name, value]) =>
    make("span", {}, `${name.replace("reward_", "")} `, make("b", {}, String(Math.round(1e4 * value) / 1e4))),
  );
  const left = [
    thinking ? foldedText(`Thinking, ${words(thinking)}`, thinking, "thinking", isUnfolded) : null,
    prose ? foldedText(`Text, ${words(prose)}`, prose) : null,
    program(turn, before),
  ];
  const passed = turn.tests.filter(([, verdict]) => verdict === "passed");
  const failed = turn.tests.filter((test) => !passed.includes(test));
  const right = failed.map((test, number) => testElement(piece, test, number === 0));
  if (passed.length) {
    const summary = `${counted(passed.length, "test")} passed`;
    right.push(folded(summary, passed.map((test) => testElement(piece, test))));
  }
  const hidden = Object.values(turn.verdicts).reduce((a, b) => a + b, 0) - turn.tests.length;
  if (hidden > 0) right.push(make("p", { class: "caption" }, `and ${hidden} more tests`));
  if (turn.answer) right.push(foldedText("What the model was told", turn.answer));
  return make(
    "article",
    { class: "turn", id: `turn-${index}` },
    make(
      "h4",
      {},
      `Turn ${piece.first_turn + index}`,
      turn.rate === null ? null : make("span", strength, rated),
      make("small", {}, facts.join(" · ")),
    ),
    turn.infra_error ? make("p", {}, `Not judged: ${turn.infra_error}`) : null,
    scores.length ? make("p", { class: "scores" }, scores) : null,
    make("div", { class: "body" }, make("div", {}, left), make("div", {}, right)),
  );
}

function foldedText(summary, text, name = "", isOpen = false) {
  return folded(summary, [make("div", { class: "text" }, text)], name, isOpen);
}

function folded(summary, content, name = "", isOpen = false) {
  return make("details", { class: name, open: isOpen }, make("summary", {}, summary), content);
}

/** A response without its program: its thinking, and the rest. */
function partsOf(turn) {
  const end = turn.text.lastIndexOf("</think>");
  const thinking = end < 0 ? "" : turn.text.slice(0, end).replace(/^\s*<think>/, "").trim();
  let prose = end < 0 ? turn.text : turn.text.slice(end + "</think>".length);
  const start = turn.code ? prose.lastIndexOf(turn.code) : -1;
  if (start >= 0) {
    const head = prose.slice(0, start).replace(/```\w*\n\s*$/, "");
    prose = `${head}\n${prose.slice(start + turn.code.length).replace(/^\s*```/, "")}`;
  }
  return { thinking, prose: prose.trim() };
}

function program(turn, before) {
  if (turn.code === null) return make("p", { class: "caption" }, "No program in this response.");
  const old = before?.code ?? null;
  if (old === null || isWhole) return make("pre", {}, turn.code.split("\n").map((line) => lineElement(" ", line)));
  if (old === turn.code) return make("p", { class: "caption" }, "The same program as before.");
  const changes = foldUnchanged(differenceOf(old.split("\n"), turn.code.split("\n")));
  return [
    make("p", { class: "caption" }, "Difference to the program before"),
    make("pre", {}, changes.map(([sign, line]) => lineElement(sign, line))),
  ];
}

function lineElement(sign, line) {
  const kind = { "+": "added", "-": "removed", "…": "same" }[sign] ?? "";
  return make("span", { class: `line ${kind}`, "data-sign": sign }, line);
}

/** Lines of two programs as [sign, line]: " " in both, "-" in the first only, "+" in the second only. */
function differenceOf(a, b) {
  let start = 0;
  while (start < a.length && start < b.length && a[start] === b[start]) start++;
  let end = 0;
  while (end < a.length - start && end < b.length - start && a.at(-1 - end) === b.at(-1 - end)) end++;
  const [x, y] = [a.slice(start, a.length - end), b.slice(start, b.length - end)];
  const signed = (sign, lines) => lines.map((line) => [sign, line]);
  const isLong = x.length * y.length > LONGEST_DIFFERENCE;
  const middle = isLong ? [...signed("-", x), ...signed("+", y)] : longestCommon(x, y);
  return [...signed(" ", a.slice(0, start)), ...middle, ...signed(" ", a.slice(a.length - end))];
}

/** The same through the longest common subsequence of lines. */
function longestCommon(x, y) {
  const width = y.length + 1;
  const common = new Uint32Array((x.length + 1) * width); // of the lines from i and from j on
  for (let i = x.length - 1; i >= 0; i--)
    for (let j = y.length - 1; j >= 0; j--)
      common[i * width + j] =
        x[i] === y[j]
          ? common[(i + 1) * width + j + 1] + 1
          : Math.max(common[(i + 1) * width + j], common[i * width + j + 1]);
  const found = [];
  let [i, j] = [0, 0];
  while (i < x.length || j < y.length) {
    if (i < x.length && j < y.length && x[i] === y[j]) found.push([" ", x[i++]]), j++;
    else if (i < x.length && (j === y.length || common[(i + 1) * width + j] >= common[i * width + j + 1]))
      found.push(["-", x[i++]]);
    else found.push(["+", y[j++]]);
  }
  return found;
}

/** Long runs of unchanged lines become one line that counts them. */
function foldUnchanged(changes) {
  const isNear = (index) =>
    changes.slice(Math.max(0, index - UNCHANGED_SHOWN), index + UNCHANGED_SHOWN + 1).some(([sign]) => sign !== " ");
  const found = [];
  let hidden = 0;
  changes.forEach((change, index) => {
    if (isNear(index)) {
      if (hidden) found.push(["…", `${hidden} unchanged lines`]);
      hidden = 0;
      found.push(change);
    } else hidden++;
  });
  if (hidden) found.push(["…", `${hidden} unchanged lines`]);
  return found;
}

const LABELS = {
  "Input:": "Input",
  "Program's Output:": "Output",
  "Expected Output:": "Expected",
  "Stderr:": "Stderr",
};

/** The labelled values of a test's feedback, by what they are; without labels all of it is a message. */
function valuesOf(feedback) {
  const found = {};
  let name = null;
  for (const line of feedback ? feedback.split("\n") : []) {
    const label = LABELS[line];
    if (label && !(label in found)) found[(name = label)] = [];
    else if (line.startsWith("TimeoutError: ") || name === null) found[(name = "Message")] = [line];
    else found[name].push(line);
  }
  return Object.fromEntries(Object.entries(found).map(([key, lines]) => [key, lines.join("\n")]));
}

function testElement(piece, [number, verdict, feedback], isOpen = false) {
  const values = valuesOf(feedback);
  const [input, expected, isWrong] = piece.tests[number] ?? [null, null, false];
  const shown = {
    Input: input ?? values.Input,
    Expected: expected ?? values.Expected,
    Output: values.Output,
    Stderr: values.Stderr,
    Message: values.Message,
  };
  const content = Object.entries(shown)
    .filter(([, value]) => value != null)
    .map(([name, value]) => [make("p", { class: "caption" }, name), make("pre", { class: "small" }, value)]);
  const name = make("b", {}, verdict.replaceAll("_", " "));
  const summary = [`Test ${number} `, name, isWrong ? " · wrong on purpose" : ""];
  return folded(summary, make("div", { class: "values" }, content), "test", isOpen);
}

// ---- Keys

function onKey(event) {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const isTyping = event.target.matches("input, select");
  const where = place();
  if (event.key === "Escape") {
    if (byId("help").open) return; // the dialog closes itself
    if (isTyping) byId("list").focus();
    else if (where) location.hash = "";
    return;
  }
  if (isTyping) {
    if (event.key === "ArrowDown" && event.target.id === "search") byId("list").focus();
    return;
  }
  const key = event.shiftKey && event.key.startsWith("Arrow") ? `Shift${event.key}` : event.key;
  const action = { ...(where ? conversationKeys(where) : overviewKeys()), ...EVERYWHERE }[key];
  if (!action || byId("help").open) return;
  event.preventDefault();
  action();
}

const EVERYWHERE = {
  "/": () => {
    location.hash = "";
    setTimeout(() => byId("search").focus());
  },
  "?": () => byId("help").showModal(),
};

function overviewKeys() {
  const page = Math.floor(byId("list").clientHeight / ROW_HEIGHT) - 1;
  return {
    ArrowDown: () => choose(chosen + 1),
    ArrowUp: () => choose(chosen - 1),
    PageDown: () => choose(chosen + page),
    PageUp: () => choose(chosen - page),
    Home: () => choose(0),
    End: () => choose(shown.length - 1),
    Enter: () => open(shown[chosen]),
    ArrowRight: () => open(shown[chosen]),
  };
}

function conversationKeys({ row, samples }) {
  const number = shown.indexOf(row);
  const most = Math.max(...row.of.map((problem) => problem?.samples.length ?? 0));
  const move = (step) => {
    const next = Math.max(...samples) + step;
    if (next >= 0 && next < most) open(row, samples.map(() => next));
  };
  return {
    ArrowLeft: () => move(-1),
    ArrowRight: () => move(1),
    ShiftArrowLeft: () => open(shown[number - 1]),
    ShiftArrowRight: () => open(shown[number + 1]),
    d: toggleWhole,
    t: toggleThinking,
  };
}

// ---- Start

function select(name, options, onchange) {
  const choices = options.map((text, number) => make("option", { value: number }, text));
  const element = make("select", { id: `filter-${name}`, "aria-label": name }, choices);
  element.addEventListener("change", () => {
    element.classList.toggle("on", element.selectedIndex > 0);
    onchange(element.selectedIndex);
    update();
  });
  byId("filters").append(element);
}

function makeFilters() {
  for (const [name, options] of Object.entries(filterChoices())) {
    if (!options.length) continue;
    const texts = options.map(([text, , count]) => `${text} (${count.toLocaleString("en")})`);
    select(name, [`any ${name}`, ...texts], (index) => {
      if (index === 0) delete asked[name];
      else asked[name] = options[index - 1][1];
    });
  }
  const orders = Object.keys(ORDERS).slice(0, files.length === 2 ? undefined : 3);
  select("order", orders, (index) => (order = ORDERS[orders[index]]));
  select("measure", Object.keys(MEASURES), (index) => (measure = Object.values(MEASURES)[index]));
}

async function start() {
  readIndex(await unpack("index"));
  document.title = `${files.map((file) => file.name).join(" | ")} · Cobalt view`;
  for (const file of files) {
    const content = make("span", { class: "soft" }, `${file.kind}, ${counted(file.problems.length, "problem")}`);
    byId("files").append(make("span", { class: `file ${file.colour}` }, `${file.name} `, content));
  }
  makeFilters();
  byId("table").style.setProperty("--cells", files.length * turns.length);
  const longest = Math.max(8, largest(rows, (row) => row.label.length));
  byId("table").style.setProperty("--label", `${Math.min(19, longest)}ch`);
  byId("table").classList.toggle("many", files.length * turns.length > 10);
  byId("loading").hidden = true;
  byId("overview").hidden = false;
  byId("search").addEventListener("input", (event) => {
    searched = event.target.value.toLowerCase().split(/\s+/).filter(Boolean);
    foundInTexts = null;
    update();
  });
  byId("filters").addEventListener("submit", (event) => {
    event.preventDefault();
    searchTexts();
  });
  byId("list").addEventListener("scroll", () => requestAnimationFrame(drawRows));
  byId("help-button").addEventListener("click", () => byId("help").showModal());
  window.addEventListener("resize", drawRows);
  window.addEventListener("hashchange", route);
  document.addEventListener("keydown", onKey);
  update();
  await route();
  document.body.dataset.ready = Math.round(performance.now()); // milliseconds since the page was opened
}

start().catch((error) => {
  byId("loading").textContent = `This page cannot be shown: ${error.message}. A browser of 2023 or later is needed.`;
  throw error;
});
