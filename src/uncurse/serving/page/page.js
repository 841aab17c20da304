// The page of the service, after drawing.js. One response of /explain holds all that is drawn; nothing else is fetched.

// ---- scores: each has a mark of its own, by its place among the registered scores

const COLOURS = [0, 1, 3, 4, 6, 7, 8, 9, 2, 5];
const SHAPES = ["circle", "square", "diamond", "up", "down", "plus", "star", "hexagon"];

function lookOf(name) {
  const place = data.scores.indexOf(name);
  return { colour: `var(--m${COLOURS[place % COLOURS.length]})`, shape: SHAPES[place % SHAPES.length], dash: "" };
}
const labelOf = (method) => method.spec.replace(":", ", "); // so that it can be broken into lines
const named = (score) => html("span", { class: "named" }, swatch(lookOf(score.name), false), html("span", {}, labelOf(score)));

// ---- state

const BEAM_SIZES = [1, 2, 3, 4, 5, 6, 8, 10, 12, 15, 20, 25, 30, 40, 50, 75, 100, 150, 200].filter((size) => size < data.beam_size);
BEAM_SIZES.push(data.beam_size);
const state = { score: data.score, rule: data.stop, compared: data.scores[0], step: 1, reading: null };
let found = null; // the response that is shown
let fetching = null; // aborts the request that is under way
let playing = null;

const beamSize = () => BEAM_SIZES[Number(byId("beam-size").value)];
const scoreIndex = (name) => Math.max(0, found.scores.findIndex((score) => score.name === name));
const outcomeOf = (score, rule) => found.outcomes.find((outcome) =>
  found.scores[outcome.score].name === score && found.rules[outcome.rule].name === rule);
const byRule = (rule) => found.outcomes.filter((outcome) => found.rules[outcome.rule].name === rule);
const scope = (id, text) => { byId(id).querySelector(".scope").textContent = text; };

// ---- requests

async function search() {
  fetching?.abort();
  const sentence = byId("sentence").value.trim(), current = (fetching = new AbortController()), began = performance.now();
  if (!sentence) return complain({ errors: [{ pointer: "#/sentence", detail: "the sentence is empty" }] });
  document.body.setAttribute("aria-busy", "true");
  byId("status").textContent = `Searching with beam size ${beamSize()} …`;
  const headers = { "Content-Type": "application/json" };
  if (byId("token").value) headers.Authorization = `Bearer ${byId("token").value}`;
  try {
    const body = JSON.stringify({ sentence, beam_size: beamSize() });
    const response = await fetch("explain", { method: "POST", headers, body, signal: current.signal });
    const answer = await response.json();
    if (!response.ok) return complain(answer, response.headers.get("Retry-After"));
    show(answer, (performance.now() - began) / 1000);
  } catch (error) {
    if (error.name !== "AbortError") complain({ detail: `the service is not responding: ${error.message}` });
  } finally {
    if (fetching === current) document.body.removeAttribute("aria-busy");
  }
}

function complain(problem, retryAfter) {
  const fields = { "#/sentence": "sentence", "#/beam_size": "beam-size" };
  const words = problem.errors?.length ? problem.errors.map((error) => error.detail) : [problem.detail];
  if (retryAfter) words.push(`try again in ${plural(Number(retryAfter), "second")}`);
  byId("problem").textContent = capital(words.join("; ")) + ".";
  byId("problem").hidden = false;
  byId("status").textContent = "";
  byId("found").hidden = true; // what it shows is not the answer to what the form says
  pause();
  for (const { pointer } of problem.errors ?? []) byId(fields[pointer] ?? "sentence").setAttribute("aria-invalid", "true");
}

function show(answer, seconds) {
  found = answer;
  pause();
  byId("problem").hidden = true;
  for (const id of ["sentence", "beam-size"]) byId(id).removeAttribute("aria-invalid");
  byId("status").textContent = [
    plural(answer.source_length, "source token"),
    answer.expected_length === null ? null : `expected length ${fixed(answer.expected_length, 1)}`,
    `max length ${answer.max_length}`, `${fixed(answer.finished, 0)} finished in ${plural(answer.steps, "step")}`,
    answer.in_time ? null : "ended by the deadline", `${fixed(seconds, 2)} s`,
  ].filter(Boolean).join(" · ");
  byId("found").hidden = false;
  for (const [key, methods] of [["score", answer.scores], ["compared", answer.scores], ["rule", answer.rules]]) {
    if (state[key] && !methods.some((method) => method.name === state[key])) state[key] = methods[0].name;
  }
  const scores = answer.scores.map((score) => [score.name, labelOf(score)]);
  options(byId("score"), scores, state.score);
  options(byId("compared"), [...scores, ["", "nothing"]], state.compared);
  options(byId("rule"), answer.rules.map((rule) => [rule.name, labelOf(rule)]), state.rule);
  byId("step").max = answer.steps;
  state.reading = null;
  drawChoices();
  drawScore();
  drawCosts();
  drawCommands();
}

// ---- what each score picks

function drawChoices() {
  const rule = found.rules.find((each) => each.name === state.rule), outcomes = byRule(state.rule);
  const against = state.compared === "" ? null : outcomeOf(state.compared, state.rule)?.text ?? null;
  const groups = Map.groupBy(outcomes, (outcome) => outcome.text);
  byId("choices-title").textContent = groups.size === 1 ? "What each score picks: all the same" : `What each score picks: ${groups.size} outputs`;
  byId("rule-note").textContent = `${rule.name}: ${rule.formula} (${rule.source}).`;
  byId("outputs").replaceChildren(...[...groups].map(([text, group]) => html("div", { class: "choice" },
    html("p", { class: "output", dir: "auto" }, ...marked(text, against)), lengthOf(group[0].length), choiceTable(group))));
  scatter.draw();
  const first = outcomeOf(state.score, state.rule) ?? outcomes[0];
  read(state.reading ?? first?.candidate ?? null);
}

/** The length of an output, beside the maximum and the expected length. */
function lengthOf(length) {
  const { expected_length: expected, max_length: max } = found, most = Math.max(max, expected ?? 0);
  const bar = html("i"), mark = html("b", { hidden: expected === null });
  bar.style.width = `${(100 * length) / most}%`;
  mark.style.left = `calc(${(100 * (expected ?? 0)) / most}% - 1px)`;
  const words = expected === null ? `${plural(length, "token")} of at most ${max}`
    : `${plural(length, "token")}, ${fixed((100 * length) / expected, 0)} % of the ${fixed(expected, 1)} expected`;
  const short = expected !== null && length < 0.85 * expected;
  return html("div", { class: "long" },
    html("div", { class: short ? "track short" : "track", "aria-hidden": "true" }, bar, mark), html("span", {}, words));
}

function choiceTable(group) {
  const rows = group.map((outcome) => {
    const [certificate, meaning] = CERTIFICATES[outcome.certificate];
    const gap = outcome.certificate === "NONE" && outcome.gap !== null ? `, gap ${fixed(outcome.gap, 2)}` : "";
    const numbers = [outcome.value === null ? "–" : fixed(outcome.value, 3), outcome.steps, fixed(outcome.model_rows, 0)];
    return html("tr", {}, html("th", { scope: "row" }, named(found.scores[outcome.score])),
      ...numbers.map((value) => html("td", { class: "number" }, String(value))),
      html("td", {}, html("span", { class: `certificate ${outcome.certificate.toLowerCase()}`, title: meaning }, certificate + gap)));
  });
  const head = ["chosen by", "score", "steps", "rows", "certificate"];
  const widths = ["", "score", "count", "count", "proof"].map((kind) => html("col", { class: kind }));
  return html("div", { class: "scroll" }, html("table", {}, html("colgroup", {}, ...widths),
    html("thead", {}, html("tr", {}, ...head.map((cell) => html("th", { scope: "col" }, cell)))), html("tbody", {}, ...rows)));
}

// ---- what finished

function candidatePoints() {
  return found.candidates.map((candidate, place) => {
    const by = byRule(state.rule).filter((outcome) => outcome.candidate === place).map((outcome) => found.scores[outcome.score].name);
    const rows = by.map((name) => ({ look: lookOf(name), label: name, value: "" }));
    const head = `${plural(candidate.length, "token")}, log-probability ${fixed(candidate.log_prob, 2)}`;
    return { x: candidate.length, y: candidate.log_prob, text: candidate.text, by, place, size: 3.2, tip: { head, rows } };
  });
}

function scatterSpec() {
  const chosen = new Set(byRule(state.rule).map((outcome) => outcome.candidate));
  scope("scatter", found.finished > found.candidates.length
    ? `the ${found.candidates.length} likeliest of ${fixed(found.finished, 0)}` : `all ${fixed(found.finished, 0)}`);
  scatterKey.replaceChildren(...found.scores.filter((score) => chosen.has(outcomeOf(score.name, state.rule)?.candidate ?? -1))
    .map((score) => html("p", {}, named(score))), html("p", {}, html("span", {}, "Marks show whose choice a point is.")));
  return { ...candidateChart(found, candidatePoints(), lookOf, (point) => read(point.place)), picked: (point) => { state.reading = point.place; } };
}

function read(place) {
  const host = byId("reading");
  if (place === null) return host.replaceChildren(html("p", { class: "note" }, "Nothing finished within the maximum length."));
  const candidate = found.candidates[place];
  const by = byRule(state.rule).filter((outcome) => outcome.candidate === place).map((outcome) => labelOf(found.scores[outcome.score]));
  const facts = [`${plural(candidate.length, "token")}, log-probability ${fixed(candidate.log_prob, 2)}`, by.length ? `chosen by ${by.join(" · ")}` : null];
  host.replaceChildren(html("p", { class: "note" }, facts.filter(Boolean).join(" · ")),
    html("p", { class: "output", dir: "auto" }, ...marked(candidate.text, null)));
}

// ---- the search, step by step

/** The ranks on the way to a candidate, from the first step to the one at which it ended. */
function wayTo(candidate) {
  if (!candidate) return [];
  const ranks = [candidate.rank];
  for (let step = candidate.length - 1; step > 0; step--) ranks.unshift(found.beams.parents[step][ranks[0]]);
  return ranks;
}

function prefixOf(step, rank) {
  const { tokens, parents, token_texts: texts, eos } = found.beams, words = [];
  for (let at = step - 1; at >= 0; at--) {
    const token = tokens[at][rank];
    if (token !== eos) words.unshift(texts[token] ?? "");
    rank = parents[at][rank];
  }
  return words;
}

function drawScore() {
  const score = found.scores[scoreIndex(state.score)];
  byId("score-formula").textContent = score.formula;
  setStep(Math.min(outcomeOf(score.name, data.stop)?.steps ?? found.steps, found.steps));
  curve.draw();
}

const curveOf = () => found.bound_curves[scoreIndex(state.score)];
const proofStep = () => {
  const { best, bound } = curveOf();
  const place = best.findIndex((value, step) => value !== null && isProved(value, bound[step], step));
  return place < 0 ? null : place + 1;
};
/** A bound of null means that nothing can come if no prefix can go on, and else that there is no bound yet. */
const isProved = (best, bound, step) => best !== null && (bound === null ? curveOf().hopeful[step] === 0 : best >= bound);

let moveCursor = () => {};

function curveSpec() {
  const { best, bound } = curveOf(), steps = [...best.keys()];
  const points = (values) => steps.filter((step) => values[step] !== null).map((step) => ({ x: step + 1, y: values[step], size: 2 }));
  const proof = proofStep(), both = steps.filter((step) => best[step] !== null && bound[step] !== null);
  scope("curve", proof === null ? "never proved within the maximum length"
    : proof === found.max_length && bound.at(-1) === null && best.at(-1) !== null && !both.some((step) => best[step] >= bound[step])
      ? "proved only by reaching the maximum length" : `proved at step ${proof} of ${found.steps}`);
  return {
    label: `Best finished score and bound under ${state.score}, by step`, height: 300,
    series: [
      { name: "bound", label: "bound on what could come", look: { colour: "var(--accent)", shape: "circle", dash: "5 3" }, points: points(bound) },
      { name: "best", label: "best finished", look: { colour: "var(--m7)", shape: "square", dash: "" }, points: points(best), stepped: true },
    ],
    x: { kind: "whole", label: "step", values: steps.map((step) => step + 1) },
    y: { span: 0.2 }, head: (step) => `step ${step}`, write: (value) => fixed(value, 3), picked: (step) => setStep(step),
    decorate: (x, y) => gapBetween(both.filter((step) => bound[step] > best[step]), best, bound, x, y),
    overlay: (x, y, box) => {
      const now = svg("g", { class: "now" }, svg("line", { y1: box.top - 2, y2: box.bottom }), svg("circle", { cy: box.bottom, r: 5 }));
      moveCursor = () => now.setAttribute("transform", `translate(${x(state.step)},0)`);
      moveCursor();
      const right = proof !== null && x(proof) > (box.left + box.right) / 2;
      const moment = proof === null ? [] : [svg("g", { class: "proof" },
        svg("line", { x1: x(proof), x2: x(proof), y1: box.top - 6, y2: box.bottom }),
        svg("text", { x: x(proof) + (right ? -7 : 7), y: box.top + 2, "text-anchor": right ? "end" : "start" }, "proved"))];
      return [...moment, ...lineName("bound", points(bound)[0], x, y, -9), ...lineName("best finished", points(best)[0], x, y, 17), now];
    },
  };
}

/** The name of a line, where it begins. */
function lineName(name, point, x, y, down) {
  if (!point) return [];
  const left = x(point.x), right = left > x(found.steps) * 0.8;
  return [svg("text", { class: "name", x: left, y: y(point.y) + down, "text-anchor": right ? "end" : "start" }, name)];
}

/** The area between the bound and the best, which rises in steps. */
function gapBetween(steps, best, bound, x, y) {
  if (!steps.length) return [];
  const above = steps.map((step) => `${x(step + 1)},${y(bound[step])}`).join("L");
  const below = steps.toReversed().map((step, place, all) => (place ? `V${y(best[step])}H${x(step + 1)}` : `L${x(all[0] + 1)},${y(best[step])}`)).join("");
  return [svg("path", { class: "gap", d: `M${above}${below}Z` })];
}

function setStep(step) {
  state.step = Math.max(1, Math.min(found.steps, step));
  byId("step").value = state.step;
  byId("step-value").textContent = `${state.step} of ${found.steps}`;
  moveCursor();
  tell();
  drawBeam();
  drawEnded();
}

/** What is known after this step, in a sentence. */
function tell() {
  const { best, bound } = curveOf(), at = state.step - 1, [now, could] = [best[at], bound[at]];
  const proved = isProved(now, could, at), proof = proofStep();
  const finished = found.beams.tokens[at].filter((token) => token === found.beams.eos).length;
  const ended = finished ? `${plural(finished, "hypothesis").replace("hypothesiss", "hypotheses")} ended here. ` : "";
  let words = "Nothing has finished yet.";
  if (proved && could === null) words = `No prefix can go on: the best finished, ${fixed(now, 3)}, is the best there is.`;
  else if (proved) words = `The best finished, ${fixed(now, 3)}, is not below the bound, ${fixed(could, 3)}: nothing that could still come is better.`;
  else if (now !== null && could === null) words = `The best finished is ${fixed(now, 3)}, and there is no bound yet on what could come.`;
  else if (now !== null) words = `The best finished is ${fixed(now, 3)}, and up to ${fixed(could, 3)} could still come: a gap of ${fixed(could - now, 3)}.`;
  const moment = proof === state.step ? "Proved at this step. " : proof !== null && state.step > proof ? "Already proved. " : "";
  byId("told").textContent = `${moment}${ended}${words}`;
  byId("told").classList.toggle("proved", proved);
}

const KINDS = { ended: "ended", hopeless: "can no longer win", way: "on the path to the pick", best: "best so far" };

function prefixItem({ rank, words, value, digits, kinds, last }) {
  const shown = words.join("").trimStart(), tail = last ? words.at(-1) ?? "" : "";
  const head = tail && shown.endsWith(tail) ? shown.slice(0, shown.length - tail.length) : shown;
  const text = shown ? [head, tail && head !== shown ? html("b", {}, tail) : null] : [html("em", { class: "empty" }, "nothing")];
  const told = kinds.filter(Boolean), spoken = told.map((kind) => `, ${KINDS[kind]}`).join("");
  return html("li", { class: told.join(" ") }, html("span", { class: "rank" }, String(rank)),
    html("span", { class: "text", dir: "auto" }, ...text.filter(Boolean)),
    html("span", { class: "value" }, fixed(value, digits), html("span", { class: "unseen" }, spoken)));
}

function drawBeam() {
  const { tokens, log_probs: sums, eos } = found.beams, at = state.step - 1;
  const outcome = outcomeOf(state.score, data.stop), way = wayTo(found.candidates[outcome?.candidate ?? -1]);
  const hopeful = curveOf().hopeful[at], kept = tokens[at].map((token, rank) => ({ token, rank })).filter(({ token }) => token >= 0);
  let live = 0;
  const items = kept.map(({ token, rank }) => {
    const ended = token === eos, hopeless = !ended && live++ >= hopeful;
    const kinds = [ended && "ended", hopeless && "hopeless", way[at] === rank && "way"];
    return prefixItem({ rank: rank + 1, words: prefixOf(state.step, rank), value: sums[at][rank], digits: 2, kinds, last: !ended });
  });
  byId("beam").replaceChildren(...items);
  byId("beam").scrollTop = 0;
  byId("beam-scope").textContent = `step ${state.step}: ${live} alive, of which ${Math.min(hopeful, live)} could still win`;
}

function drawEnded() {
  const score = scoreIndex(state.score);
  const ended = found.candidates.filter((candidate) => candidate.length <= state.step && candidate.scores[score] !== null);
  ended.sort((a, b) => b.scores[score] - a.scores[score]);
  const items = ended.slice(0, 30).map((candidate, place) => prefixItem({
    rank: place + 1, words: [candidate.text], value: candidate.scores[score], digits: 3, last: false,
    kinds: [place === 0 && "best", candidate.length === state.step && "ended"],
  }));
  byId("ended").replaceChildren(...(items.length ? items : [html("li", { class: "none" }, "Nothing yet.")]));
  byId("ended").scrollTop = 0;
  byId("ended-scope").textContent = `by ${state.score}`;
}

function pause() {
  clearInterval(playing);
  playing = null;
  byId("play").textContent = "▶";
  byId("play").setAttribute("aria-label", "Play");
}

function play() {
  if (playing !== null) return pause();
  if (state.step === found.steps) setStep(1);
  byId("play").textContent = "❚❚";
  byId("play").setAttribute("aria-label", "Pause");
  playing = setInterval(() => {
    setStep(state.step + 1);
    if (state.step === found.steps || state.step === proofStep()) pause();
  }, 600);
}

// ---- what stopping costs and loses

function drawCosts() {
  const rows = found.outcomes.map((outcome) => outcome.model_rows), shade = linear(Math.min(...rows), Math.max(...rows), 6, 50);
  const cell = (score, rule) => {
    const outcome = outcomeOf(score.name, rule.name);
    if (!outcome) return html("td", {}, "–");
    const lost = outcome.loss > 0 ? html("small", { class: "lost" }, `loses ${fixed(outcome.loss, 2)}`) : null;
    const element = html("td", {}, html("b", {}, fixed(outcome.model_rows, 0)), html("small", {}, `step ${outcome.steps}`), lost);
    element.style.setProperty("--heat", `${shade(outcome.model_rows).toFixed(0)}%`);
    return element;
  };
  byId("costs").replaceChildren(html("table", { class: "costs" },
    html("thead", {}, html("tr", {}, html("th", { scope: "col" }, "score"), ...found.rules.map((rule) => html("th", { scope: "col", title: rule.formula }, labelOf(rule))))),
    html("tbody", {}, ...found.scores.map((score) => html("tr", {}, html("th", { scope: "row" }, named(score)),
      ...found.rules.map((rule) => cell(score, rule)))))));
}

function drawCommands() {
  const quoted = (text) => `'${text.replaceAll("'", "'\\''")}'`;
  const token = data.token ? ' -H "Authorization: Bearer $TOKEN"' : "";
  const decoding = { beam_size: found.beam_size, score: found.scores[scoreIndex(state.score)].spec };
  if (state.rule !== data.stop) decoding.stop = found.rules.find((rule) => rule.name === state.rule).spec;
  const body = JSON.stringify({ sentences: [found.source], ...decoding });
  byId("commands").textContent = [
    `curl ${location.origin}/translate -H 'Content-Type: application/json'${token} -d ${quoted(body)}`,
    `uncurse explain --model ${quoted(data.model)}${data.model_flags && " "}${data.model_flags} --beam-size ${found.beam_size} ${quoted(found.source)}`,
  ].join("\n");
  byId("signature").textContent = found.signature;
}

// ---- the rest of the page

const scatterKey = html("div", { class: "legend" });
const scatter = new Chart(byId("scatter"), scatterSpec, false);
byId("scatter").append(scatterKey);
const curve = new Chart(byId("curve"), curveSpec);

let soon = null;
const searchSoon = () => { clearTimeout(soon); soon = setTimeout(search, 250); };
const showBeamSize = () => { byId("beam-size-value").textContent = beamSize(); };
const choose = (id, key, ...draw) => byId(id).addEventListener("change", (event) => {
  state[key] = event.target.value;
  draw.forEach((each) => each());
});

byId("beam-size").max = BEAM_SIZES.length - 1;
byId("beam-size").value = Math.max(0, BEAM_SIZES.findLastIndex((size) => size <= 20));
showBeamSize();
byId("beam-size").addEventListener("input", () => { showBeamSize(); byId("beam-size").setAttribute("aria-valuetext", String(beamSize())); });
byId("beam-size").addEventListener("change", searchSoon);
byId("request").addEventListener("submit", (event) => { event.preventDefault(); search(); });
byId("sentence").addEventListener("keydown", (event) => {
  if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
  event.preventDefault();
  search();
});
choose("rule", "rule", drawChoices, drawCommands);
choose("compared", "compared", drawChoices);
choose("score", "score", drawScore, drawCommands);
byId("step").addEventListener("input", (event) => { pause(); setStep(Number(event.target.value)); });
byId("first").addEventListener("click", () => { pause(); setStep(1); });
byId("back").addEventListener("click", () => { pause(); setStep(state.step - 1); });
byId("forward").addEventListener("click", () => { pause(); setStep(state.step + 1); });
byId("proof").addEventListener("click", () => { pause(); setStep(proofStep() ?? found.steps); });
byId("play").addEventListener("click", play);
byId("token-field").hidden = !data.token;
if (data.examples.length) {
  byId("pick").hidden = false;
  options(byId("examples"), data.examples.map((text, place) => [String(place), text]), "0");
  byId("examples").addEventListener("change", (event) => { byId("sentence").value = data.examples[event.target.value]; search(); });
  byId("sentence").value = data.examples[0];
  if (!data.token) search();
}
