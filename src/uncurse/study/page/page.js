// The page of a study, after drawing.js. Everything is drawn from the JSON in #data; nothing is fetched.

// ---- words and numbers

const METRICS = {
  bleu: { label: "BLEU", digits: 2, span: 1 },
  ratio: { label: "length ratio", digits: 3, span: 0.02, reference: 1 },
  brevity_penalty: { label: "brevity penalty", digits: 3, span: 0.02, reference: 1 },
  empty: { label: "empty outputs", digits: 1, percent: true },
  repeating: { label: "outputs that go in circles", digits: 1, percent: true },
  proved: { label: "proved best (beam or global)", digits: 1, percent: true },
  proved_global: { label: "proved best of all (global)", digits: 1, percent: true },
  steps: { label: "steps for a sentence", digits: 1, span: 1 },
  saved_steps: { label: "steps saved for a sentence", digits: 1, span: 1 },
  rows: { label: "model rows for a sentence", digits: 0, span: 1 },
  search_errors: { label: "search errors", digits: 1, percent: true },
  model_errors: { label: "model errors", digits: 1, percent: true },
  lost: { label: "lost optima", digits: 1, percent: true },
};
const BY_WIDTH = Object.keys(METRICS).filter((key) => key !== "lost");
const valueOf = (metric, row) => row[metric] * (METRICS[metric].percent ? 100 : 1);
const written = (metric, value) => fixed(value, METRICS[metric].digits) + (METRICS[metric].percent ? " %" : "");

// ---- methods: one look for each, the same everywhere

const LOOKS = {
  raw: ["circle", ""], "length-norm": ["square", "5 3"], "length-norm-optimal": ["square", "", true],
  gnmt: ["diamond", "2 3"], "word-reward": ["up", ""], "bounded-ratio": ["down", "7 3 2 3", true],
  bounded: ["down", ""], adaptive: ["plus", ""], "bp-norm": ["star", ""],
  "f1-norm": ["diamond", ""],
};
const SPARE = ["circle", "square", "diamond", "up", "down"];
const methods = new Map(data.methods.map((method, place) => {
  const slot = Object.keys(LOOKS).indexOf(method.name);
  const [shape, dash, open] = LOOKS[method.name] ?? [SPARE[place % SPARE.length], "1 3", true];
  return [method.name, { ...method, look: { colour: `var(--m${slot < 0 ? place % 10 : slot})`, shape, dash, open } }];
}));
const base = methods.get("raw") ?? [...methods.values()][0];
const labelOf = (name) => methods.get(name)?.label ?? name;
const lookOf = (name) => methods.get(name)?.look ?? { colour: "var(--ink)", shape: "circle", dash: "" };

/** A method's mark and name, as a row's head. */
const named = (name) => html("span", { class: "named" }, swatch(lookOf(name), false), html("span", {}, labelOf(name)));

// ---- what the reader has chosen

const state = {
  set: "test" in data.curves ? "test" : Object.keys(data.curves)[0],
  spacing: "log", metric: "bleu", gridMetric: "bleu", limitMetric: "bleu", group: "large", hidden: new Set(),
};
const charts = new Map();
const redraw = (...ids) => (ids.length ? ids : [...charts.keys()]).forEach((id) => charts.get(id)?.());
const visible = () => [...methods.values()].filter((method) => !state.hidden.has(method.name));

function scope(id, text) {
  byId(id).querySelector(".scope").textContent = text;
}

function figure(id, make) {
  const chart = new Chart(byId(id), make);
  charts.set(id, () => chart.draw());
}

function legend(id, names) {
  const buttons = names.map((name) => {
    const button = html("button", { type: "button", "aria-pressed": "true", "data-method": name }, swatch(lookOf(name)), labelOf(name));
    button.addEventListener("click", () => choose((hidden) => (hidden.has(name) ? hidden.delete(name) : hidden.add(name))));
    for (const kind of ["pointerenter", "focus"]) button.addEventListener(kind, () => emphasize(name));
    for (const kind of ["pointerleave", "blur"]) button.addEventListener(kind, () => emphasize(null));
    return button;
  });
  const all = html("button", { type: "button", class: "plain" }, "all");
  all.addEventListener("click", () => choose((hidden) => hidden.clear()));
  const none = html("button", { type: "button", class: "plain" }, "none");
  none.addEventListener("click", () => choose((hidden) => [...methods.keys()].forEach((name) => hidden.add(name))));
  byId(id).append(html("div", { class: "legend", role: "group", "aria-label": "Methods" }, ...buttons, html("div", {}, all, none)));
}

function choose(change) {
  change(state.hidden);
  for (const button of document.querySelectorAll("[data-method]")) {
    button.setAttribute("aria-pressed", String(!state.hidden.has(button.dataset.method)));
  }
  redraw();
}

function emphasize(name) {
  for (const series of document.querySelectorAll(".series[data-name]")) {
    series.classList.toggle("faint", name !== null && series.dataset.name !== name && !state.hidden.has(name));
  }
}

// ---- figures

const setScope = (set) => `${set}, ${plural(data.sets[set].lines, "sentence")}`;
const widthAxis = () => ({ kind: state.spacing, label: "beam width", prefer: data.focus });
const atWidth = (width) => `width ${width}`;
const measured = (metric) => ({ y: METRICS[metric], write: (value) => written(metric, value) });
const linesOf = (points) => visible().map(({ name, label, look }) => ({ name, label, look, points: points(name, label) }));
const curve = (name, metric) => data.curves[state.set][name].map((row) => ({ x: row.width, y: valueOf(metric, row) }));

function curseFigure(id, metric) {
  figure(id, () => {
    const points = curve(base.name, metric), last = points.at(-1);
    const best = points.reduce((found, point) => (point.y > found.y ? point : found));
    best.ring = true;
    scope(id, `${written(metric, best.y)} at width ${best.x}`
      + (best === last ? ", the widest" : `, ${written(metric, last.y)} at ${last.x}`));
    return {
      label: `${METRICS[metric].label} of the ${base.label} against beam width`, height: 230,
      series: [{ name: base.name, label: base.label, look: base.look, points }],
      x: widthAxis(), head: atWidth, ...measured(metric),
    };
  });
}

function endsFigure() {
  figure("ends", () => {
    const { widths, positions, sentences } = data.ends[state.set];
    scope("ends", `${state.set}, mean step over ${plural(sentences, "sentence")} that have three at every width`);
    const looks = [["circle", ""], ["diamond", "6 3"], ["up", "2 3"]];
    return {
      label: "Mean step of the first three ends against beam width", height: 260,
      series: ["first", "second", "third"].map((name, rank) => ({
        label: `${name} </s>`, look: { colour: `var(--end${rank})`, shape: looks[rank][0], dash: looks[rank][1] },
        points: sentences ? widths.map((width, place) => ({ x: width, y: positions[place][rank] })) : [],
      })),
      x: widthAxis(), y: { span: 2 }, head: atWidth, write: (value) => `step ${fixed(value, 1)}`,
      overlay: (x, y) => ["first", "second", "third"].map((name, rank) =>
        svg("text", { x: x(widths[0]), y: y(positions[0][rank]) - 9, class: "name" }, name)),
    };
  });
}

function methodsFigure() {
  figure("methods", () => {
    scope("methods", setScope(state.set));
    return {
      label: `${METRICS[state.metric].label} of every method against beam width`, height: 380,
      series: linesOf((name) => curve(name, state.metric)), x: widthAxis(), head: atWidth, ...measured(state.metric),
    };
  });
  legend("methods", [...methods.keys()]);
}

/** Steps along the points that have a higher y than every point to the left of them. */
function frontier(points, x, y) {
  const kept = [];
  for (const point of [...points].sort((a, b) => a.x - b.x || b.y - a.y)) {
    if (!kept.length || point.y > kept.at(-1).y) kept.push(point);
  }
  const path = kept.map((point, place) => (place ? `H${x(point.x)}V${y(point.y)}` : `M${x(point.x)},${y(point.y)}`)).join("");
  return kept.length > 1 ? [svg("path", { d: path, class: "frontier" })] : [];
}

function costFigure() {
  figure("cost", () => {
    scope("cost", `${setScope(state.set)}; the grey steps join what nothing beats at less cost`);
    const series = linesOf((name, label) => data.curves[state.set][name].map((row) => {
      const rows = ["bleu", "rows", "steps"].map((key) => ({ label: METRICS[key].label, value: written(key, row[key]) }));
      return { x: row.rows, y: row.bleu, tip: { head: `${label}, width ${row.width}`, rows } };
    }));
    return {
      label: "BLEU against model rows for a sentence", height: 380, near: true, series,
      x: { kind: "decades", label: "model rows for a sentence" }, y: METRICS.bleu,
      decorate: (x, y) => frontier(series.flatMap((each) => each.points), x, y),
    };
  });
  legend("cost", [...methods.keys()]);
}

function decileFigure(id, metric) {
  const tenths = Object.values(data.deciles)[0];
  figure(id, () => {
    scope(id, `test, beam width ${data.focus}`);
    return {
      label: `${METRICS[metric].label} from short to long sources`, height: 280,
      series: linesOf((name) => data.deciles[name].map((row, place) => ({ x: place, y: valueOf(metric, row) }))),
      x: {
        kind: "even", label: "mean source length of each tenth", values: [...tenths.keys()],
        write: (place) => fixed(tenths[place].source_length, 0),
      },
      head: (place) => `${fixed(tenths[place].source_length, 1)} pieces, ${plural(tenths[place].sentences, "sentence")}`,
      ...measured(metric),
    };
  });
}

/** A table coloured by its values; `make` gives rows, columns, cells, metric and, where one is best, its place. */
function heatFigure(id, label, make) {
  const host = html("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": label });
  byId(id).append(host);
  charts.set(id, () => host.replaceChildren(heatTable(make())));
}

function heatTable({ corner, rows, columns, cells, metric, best = [] }) {
  const known = cells.flat().filter((value) => value !== undefined);
  const shade = linear(Math.min(...known), Math.max(...known), 4, 58);
  const cell = (row, column) => {
    const value = cells[row][column];
    const element = html("td", { class: row === best[0] && column === best[1] ? "best" : "" },
      value === undefined ? "–" : written(metric, value));
    element.style.setProperty("--heat", value === undefined ? "0%" : `${shade(value).toFixed(0)}%`);
    return element;
  };
  return html("table", { class: metric === "lost" ? "heat low" : "heat" },
    html("thead", {}, html("tr", {}, html("th", {}, corner), ...columns.map((column) => html("th", { scope: "col" }, column)))),
    html("tbody", {}, ...rows.map((name, row) =>
      html("tr", {}, html("th", { scope: "row" }, name), ...columns.map((_, column) => cell(row, column))))));
}

function gridFigure() {
  const scores = [...new Set(data.grid.map((cell) => cell.score))], stops = [...new Set(data.grid.map((cell) => cell.stop))];
  const metric = () => state.gridMetric;
  heatFigure("grid", "Scores and stopping rules", () => {
    scope("grid", `test, beam width ${data.focus}`);
    const cells = scores.map((score) => stops.map((stop) => {
      const cell = data.grid.find((each) => each.score === score && each.stop === stop);
      return cell && valueOf(metric(), { ...cell.measures, lost: cell.lost });
    }));
    return { corner: "score", rows: scores.map(named), columns: stops, cells, metric: metric() };
  });
}

function limitFigure() {
  const limits = [...new Map(data.limits.map((cell) => [cell.limit, cell.mean_limit]))].sort((a, b) => a[1] - b[1]);
  const names = limits.map(([name]) => name), within = data.lengths.dev.within;
  const pairs = [...new Set(data.limits.map((cell) => `${cell.method} ${cell.stop}`))].map((pair) => pair.split(" "));
  const points = (method, stop) => data.limits.filter((cell) => cell.method === method && cell.stop === stop)
    .map((cell) => ({ x: names.indexOf(cell.limit), y: valueOf(state.limitMetric, cell.measures) })).sort((a, b) => a.x - b.x);
  const series = ([name, stop]) => {
    const look = { ...lookOf(name), dash: stop === "optimal" ? "" : "1.5 4" };
    return { name, label: labelOf(name) + (stop === "optimal" ? "" : `, ${stop}`), look, points: points(name, stop) };
  };
  figure("limit", () => {
    const dotted = pairs.some(([, stop]) => stop !== "optimal") ? "; solid: stopped by the bound, dotted: by predicted-horizon" : "";
    scope("limit", `${setScope("dev")}, beam width ${data.limits_width}${dotted}`);
    return {
      label: `${METRICS[state.limitMetric].label} under every limit`, height: 360,
      series: pairs.filter(([name]) => !state.hidden.has(name)).map(series),
      x: {
        kind: "even", label: "limit R and its mean", values: [...names.keys()], slant: true,
        write: (place) => `${names[place]} (${fixed(limits[place][1], 0)})`,
      },
      head: (place) => `${names[place]}: ${fixed(limits[place][1], 1)} tokens on average, `
        + `${fixed(100 * within[names[place]], 0)} % of the references fit`,
      ...measured(state.limitMetric),
    };
  });
  legend("limit", [...new Set(pairs.map(([name]) => name))]);
}

function rewardFigure() {
  const tuned = () => data.tuning[state.group];
  const curves = () => tuned().curves.filter(({ name, values }) => values[0].length === 1 && !state.hidden.has(name));
  const point = ({ bleu, best }) => ([value], place) =>
    ({ x: value, y: bleu[place], size: value === best[0] ? 4.6 : 2.2, ring: value === best[0] });
  const perceptron = (x, box) => ({ name }) => {
    const value = tuned().perceptron[name], left = Math.max(box.left, Math.min(box.right, x(value)));
    const title = svg("title", {}, `${labelOf(name)}, perceptron: ${fixed(value, 2)}`);
    const bar = svg("line", { x1: left, x2: left, y1: box.bottom - 16, y2: box.bottom, class: "perceptron" }, title);
    return coloured(bar, lookOf(name));
  };
  figure("rewards", () => {
    scope("rewards", "large mark: best value; bar on the axis: what the perceptron finds");
    return {
      label: "Dev BLEU against the reward for each word", height: 320,
      series: curves().map((each) => ({
        name: each.name, label: labelOf(each.name), look: lookOf(each.name), points: each.values.map(point(each)),
      })),
      x: { kind: "linear", label: "reward r", write: (value) => fixed(value, 1) }, head: (value) => `r = ${fixed(value, 2)}`,
      overlay: (x, y, box) => curves().filter(({ name }) => name in tuned().perceptron).map(perceptron(x, box)),
      ...measured("bleu"),
    };
  });
  legend("rewards", curves().map(({ name }) => name));
}

function gnmtFigure() {
  const found = () => data.tuning[state.group].curves.find(({ values }) => values[0].length === 2);
  byId("gnmt").hidden = !found();
  if (!found()) return;
  heatFigure("gnmt", "GNMT, α and β", () => {
    const { values, bleu, best } = found();
    const [alphas, betas] = [0, 1].map((part) => [...new Set(values.map((value) => value[part]))]);
    const cells = alphas.map((alpha) => betas.map((beta) => bleu[values.findIndex(([a, b]) => a === alpha && b === beta)]));
    scope("gnmt", `best: α = ${best[0]}, β = ${best[1]}`);
    return {
      corner: "α \\ β", rows: alphas.map(String), columns: betas.map(String), cells, metric: "bleu",
      best: [alphas.indexOf(best[0]), betas.indexOf(best[1])],
    };
  });
}

// ---- sentences

const seen = data.sentences.map((sentence, index) => {
  const own = sentence.choices[base.name].length;
  const closest = sentence.reference_lengths.reduce((best, each) => (Math.abs(each - own) < Math.abs(best - own) ? each : best));
  const outputs = new Set(Object.values(sentence.choices).map((choice) => choice.text)).size;
  const rows = Math.max(...Object.values(sentence.choices).map((choice) => choice.rows));
  return { index, sentence, ratio: own / closest, closest, outputs, rows, words: null };
});

const SORTS = {
  set: ["order of the set", (a, b) => a.index - b.index],
  short: [`${base.label}: shortest against the reference`, (a, b) => a.ratio - b.ratio],
  outputs: ["number of different outputs", (a, b) => b.outputs - a.outputs],
  long: ["length of the reference", (a, b) => b.closest - a.closest],
  rows: ["model rows", (a, b) => b.rows - a.rows],
};

function searchable(item) {
  const { source, references, choices } = item.sentence;
  item.words ??= [source, ...references, ...Object.values(choices).map((choice) => choice.text)].join("\n").toLowerCase();
  return item.words;
}

function sentenceBrowser() {
  const list = byId("list"), CHUNK = 60;
  let found = [], drawn = 0, chosen = null;

  const option = (item, place) => {
    const facts = [`${fixed(item.ratio, 2)}×`, plural(item.outputs, "output"), item.sentence.proved ? null : "not proved by all"];
    return html("div", {
      role: "option", id: `option-${item.index}`, "aria-selected": String(item.index === chosen), "aria-posinset": place + 1,
      "aria-setsize": found.length, "data-place": place,
    }, html("span", { class: "facts" }, html("b", {}, `${item.index + 1}`), facts.filter(Boolean).join(" · ")),
    html("span", { class: "source" }, item.sentence.source));
  };
  const more = (least = drawn + CHUNK) => {
    const next = found.slice(drawn, Math.max(least, drawn)).map((item, place) => option(item, drawn + place));
    drawn += next.length;
    list.append(...next);
  };
  const mark = (on) => {
    const element = byId(`option-${chosen}`);
    element?.setAttribute("aria-selected", String(on));
    if (on && element) list.setAttribute("aria-activedescendant", element.id);
    return element;
  };
  const select = (place, move = true) => {
    if (place < 0 || place >= found.length) return;
    if (place >= drawn) more(place + CHUNK);
    mark(false);
    chosen = found[place].index;
    const element = mark(true);
    if (move) element.scrollIntoView({ block: "nearest" });
    showSentence(found[place]);
  };
  const filter = () => {
    const text = byId("search").value.trim().toLowerCase(), most = Number(byId("short").value);
    const [disagree, unproved] = ["disagree", "unproved"].map((id) => byId(id).checked);
    byId("short-value").textContent = most < 100 ? `at most ${most} % of the reference` : "any";
    found = seen.filter((item) => (most === 100 || item.ratio * 100 <= most) && (!disagree || item.outputs > 1)
      && (!unproved || !item.sentence.proved) && (!text || searchable(item).includes(text)));
    found.sort(SORTS[byId("sort").value][1]);
    byId("count").textContent = `${fixed(found.length, 0)} of ${plural(seen.length, "sentence")}`;
    drawn = 0;
    list.removeAttribute("aria-activedescendant");
    list.replaceChildren();
    list.scrollTop = 0;
    more();
    mark(true);
  };

  options(byId("sort"), Object.entries(SORTS).map(([key, [label]]) => [key, label]), "short");
  byId("filters").addEventListener("input", filter);
  byId("filters").addEventListener("submit", (event) => event.preventDefault());
  list.addEventListener("scroll", () => list.scrollTop + list.clientHeight > list.scrollHeight - 300 && more());
  list.addEventListener("click", (event) => {
    const item = event.target.closest("[role=option]");
    if (!item) return;
    select(Number(item.dataset.place));
    if (matchMedia("(max-width: 860px)").matches) byId("detail").scrollIntoView({ block: "start" });
  });
  list.addEventListener("keydown", (event) => {
    const here = found.findIndex((item) => item.index === chosen);
    const next = { ArrowDown: here + 1, ArrowUp: here - 1, PageDown: here + 10, PageUp: here - 10, Home: 0, End: found.length - 1 };
    if (!(event.key in next) || !found.length) return;
    event.preventDefault();
    select(Math.max(0, Math.min(found.length - 1, next[event.key])));
  });
  filter();
  select(0, false);
}

function showSentence({ index, sentence, ratio }) {
  const facts = [
    `${base.label} ${fixed(ratio, 2)}× the closest reference`,
    sentence.predicted === null ? null : `predicted length ${fixed(sentence.predicted, 1)}`,
    `limit ${sentence.limit}`, `references of ${sentence.reference_lengths.join(", ")} tokens`,
  ];
  const shown = html("span", { class: "scope" }, `the ${sentence.points.length} most likely, beam width ${data.focus}`);
  const plot = html("figure", { class: "plot" }, html("figcaption", {}, "Finished candidates ", shown));
  const reading = html("div", { class: "reading" });
  byId("detail").replaceChildren(
    html("p", { class: "kicker" }, `Sentence ${index + 1}`),
    html("p", { class: "source", dir: "auto" }, sentence.source),
    html("p", { class: "note" }, capital(facts.filter(Boolean).join(" · "))),
    html("ol", { class: "references", "aria-label": "References" },
      ...sentence.references.map((text) => html("li", { dir: "auto" }, text))),
    plot, reading, choiceList(sentence));
  const points = candidatesOf(sentence);
  const read = (point) => reading.replaceChildren(
    html("p", { class: "note" }, point.tip.head), html("p", { class: "output", dir: "auto" }, ...(point.text === null
      ? [html("em", { class: "empty" }, "its text is not kept in this page")] : marked(point.text, null))));
  const drawn = { ...sentence, references: sentence.reference_lengths };
  new Chart(plot, () => candidateChart(drawn, points, lookOf, read), false);
  if (points.length) read(points.find((point) => point.by.includes(base.name)) ?? points[0]);
  else reading.append(html("p", { class: "note" }, "Nothing finished within the limit."));
}

/** The points of a sentence, each with its text where there is one and with the methods that chose it. */
function candidatesOf(sentence) {
  const key = (length, sum) => `${length} ${sum}`;
  const texts = new Map(sentence.candidates.map((each) => [key(each.length, each.log_prob), each.text]));
  const by = new Map();
  for (const [name, choice] of Object.entries(sentence.choices)) {
    if (choice.log_prob === null) continue;
    const place = key(choice.length, choice.log_prob);
    texts.set(place, choice.text);
    by.set(place, [...(by.get(place) ?? []), name]);
  }
  const places = new Map(sentence.points.map(([length, sum]) => [key(length, sum), [length, sum]]));
  for (const place of by.keys()) places.set(place, place.split(" ").map(Number));
  return [...places].map(([place, [length, sum]]) => {
    const names = by.get(place) ?? [];
    const rows = names.map((name) => ({ look: lookOf(name), label: labelOf(name), value: "" }));
    const head = `${plural(length, "token")}, log-probability ${fixed(sum, 2)}`;
    const size = texts.has(place) ? 3.6 : 2.4;
    return { x: length, y: sum, text: texts.get(place) ?? null, by: names, size, tip: { head, rows } };
  });
}

let compared = base.name; // kept from sentence to sentence

function choiceList(sentence) {
  const groups = Map.groupBy(Object.keys(sentence.choices), (name) => sentence.choices[name].text);
  const select = html("select", { id: "compared" });
  const entries = [...methods.values()].map(({ name, label }) => [name, label]);
  entries.push(...sentence.references.map((_, place) => [`reference ${place}`, `reference ${place + 1}`]));
  options(select, [...entries, ["", "nothing"]], compared);
  const body = html("div");
  const draw = () => {
    const [kind, place] = compared.split(" ");
    const against = compared === "" ? null : kind === "reference" ? sentence.references[place] : sentence.choices[compared]?.text;
    body.replaceChildren(...[...groups].map(([text, names]) => html("div", { class: "choice" },
      html("p", { class: "output", dir: "auto" }, ...marked(text, against ?? null)), choiceTable(sentence, names))));
  };
  select.addEventListener("change", () => { compared = select.value; draw(); });
  draw();
  const title = html("h3", {}, groups.size === 1 ? "All methods choose the same" : `What the methods choose: ${groups.size} outputs`);
  const kinds = Object.values(CERTIFICATES).map(([name, meaning]) => `${name}: ${meaning}`).join("; ");
  return html("section", { class: "choices" }, title, html("label", {}, "Differences from ", select), body,
    html("p", { class: "note" }, `Certificates. ${capital(kinds)}.`));
}

function choiceTable(sentence, names) {
  const rows = names.map((name) => {
    const choice = sentence.choices[name], [certificate, meaning] = CERTIFICATES[choice.optimality];
    const numbers = [choice.length, choice.score === null ? "–" : fixed(choice.score, 3), choice.steps, fixed(choice.rows, 0)];
    return html("tr", {}, html("th", { scope: "row" }, named(name)),
      ...numbers.map((value) => html("td", { class: "number" }, String(value))),
      html("td", {}, html("span", { class: `certificate ${choice.optimality.toLowerCase()}`, title: meaning }, certificate)));
  });
  const head = ["method", "length", "score", "steps", "rows", "certificate"];
  const widths = ["", "count", "score", "count", "count", "proof"].map((kind) => html("col", { class: kind }));
  return html("div", { class: "scroll" }, html("table", {}, html("colgroup", {}, ...widths),
    html("thead", {}, html("tr", {}, ...head.map((cell) => html("th", { scope: "col" }, cell)))), html("tbody", {}, ...rows)));
}

// ---- the rest of the page

function copyButton() {
  byId("copy").hidden = !navigator.clipboard;
  byId("copy").addEventListener("click", async () => {
    await navigator.clipboard.writeText(byId("commands").textContent);
    byId("copy").textContent = "Copied";
  });
}

function selector(id, metrics, key, figure) {
  options(byId(id), metrics.map((metric) => [metric, capital(METRICS[metric].label)]), state[key]);
  byId(id).addEventListener("change", (event) => setter(key, figure)(event.target.value));
}

const setter = (key, ...ids) => (value) => { state[key] = value; redraw(...ids); };
switcher(byId("bar"), "Set", Object.keys(data.curves).map((set) => [set, set]), state.set, setter("set"));
switcher(byId("bar"), "Widths", [["log", "log"], ["even", "even"]], state.spacing, setter("spacing"));
switcher(byId("group-bar"), "Tuned for widths", Object.entries(data.groups).map(([group, widths]) => [group, widths.join(", ")]),
  state.group, setter("group", "rewards", "gnmt"));
selector("metric", BY_WIDTH, "metric", "methods");
selector("grid-metric", ["bleu", "lost", "ratio", "proved", "steps", "rows"], "gridMetric", "grid");
selector("limit-metric", BY_WIDTH, "limitMetric", "limit");
curseFigure("curse-bleu", "bleu");
curseFigure("curse-penalty", "brevity_penalty");
curseFigure("curse-ratio", "ratio");
endsFigure();
methodsFigure();
costFigure();
decileFigure("decile-bleu", "bleu");
decileFigure("decile-ratio", "ratio");
gridFigure();
if (data.limits.length) limitFigure();
else for (const each of document.querySelectorAll('#limits, [href="#limits"]')) each.remove();
rewardFigure();
gnmtFigure();
byId("sentences-lead").textContent =
  `All ${plural(seen.length, "sentence")} of test at beam width ${data.focus}, with what every method chooses.`;
sentenceBrowser();
copyButton();
redraw();
