// The page of a study, after drawing.js. Everything is drawn from the JSON in #data; nothing is fetched.

// ---- words and numbers

const METRICS = {
  bleu: { label: "BLEU", digits: 2, span: 1 },
  ratio: { label: "length ratio", digits: 3, span: 0.02, reference: 1 },
  brevity_penalty: { label: "brevity penalty", digits: 3, span: 0.02, reference: 1 },
  empty: { label: "empty outputs", digits: 1, percent: true },
  repeating: { label: "outputs that repeat themselves", digits: 1, percent: true },
  proved: { label: "proved best of the search", digits: 1, percent: true },
  proved_global: { label: "proved best of all sequences", digits: 1, percent: true },
  steps: { label: "steps for a sentence", digits: 1, span: 1 },
  saved_steps: { label: "steps saved for a sentence", digits: 1, span: 1 },
  model_rows: { label: "model rows for a sentence", digits: 0, span: 1 },
  search_errors: { label: "search errors", digits: 1, percent: true },
  model_errors: { label: "model errors", digits: 1, percent: true },
  lost: { label: "lost optima", digits: 1, percent: true },
};
const BY_BEAM_SIZE = Object.keys(METRICS).filter((key) => key !== "lost");
const valueOf = (metric, row) => row[metric] * (METRICS[metric].percent ? 100 : 1);
const written = (metric, value) => fixed(value, METRICS[metric].digits) + (METRICS[metric].percent ? " %" : "");

// ---- methods: colour and mark follow from the place in the list

const MARKS = [
  ["circle", ""], ["square", "5 3"], ["square", "", true], ["diamond", "2 3"], ["up", ""],
  ["down", "7 3 2 3", true], ["down", ""], ["plus", ""], ["star", ""], ["hexagon", ""],
];

/** Where there are more methods than colours, those of one colour have different marks. */
function lookAt(place) {
  const turn = Math.floor(place / MARKS.length);
  const [shape, dash, open] = MARKS[(place + 3 * turn) % MARKS.length];
  return { colour: `var(--m${place % MARKS.length})`, shape, dash: turn ? "1.5 3" : dash, open: turn % 2 ? !open : open };
}

const methods = new Map(data.methods.map((method) => [method.name, { ...method, look: lookAt(method.place) }]));
const base = methods.get(data.baseline);
const labelOf = (name) => methods.get(name)?.label ?? name;
const lookOf = (name) => methods.get(name)?.look ?? { colour: "var(--ink)", shape: "circle", dash: "" };

/** A method's mark and name, as a row's head. */
const named = (name) => html("span", { class: "named" }, swatch(lookOf(name), false), html("span", {}, labelOf(name)));

// ---- what the reader has chosen

const state = {
  set: "test" in data.curves ? "test" : Object.keys(data.curves)[0],
  spacing: "log", metric: "bleu", stopMetric: "bleu", lengthMetric: "bleu", group: "large", hidden: new Set(),
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

const setScope = (set) => `${set}, ${plural(data.sets[set], "sentence")}`;
const beamSizeAxis = () => ({ kind: state.spacing, label: "beam size", prefer: data.display_beam_size });
const atBeamSize = (size) => `beam size ${size}`;
const measured = (metric) => ({ y: METRICS[metric], write: (value) => written(metric, value) });
const linesOf = (points) => visible().map(({ name, label, look }) => ({ name, label, look, points: points(name, label) }));
const curve = (name, metric) => data.curves[state.set][name].map((row) => ({ x: row.beam_size, y: valueOf(metric, row) }));

function curseFigure(id, metric) {
  figure(id, () => {
    const points = curve(base.name, metric), last = points.at(-1);
    const best = points.reduce((found, point) => (point.y > found.y ? point : found));
    best.ring = true;
    scope(id, `${written(metric, best.y)} at beam size ${best.x}`
      + (best === last ? ", the largest" : `, ${written(metric, last.y)} at ${last.x}`));
    return {
      label: `${METRICS[metric].label} of the ${base.label} against beam size`, height: 230,
      series: [{ name: base.name, label: base.label, look: base.look, points }],
      x: beamSizeAxis(), head: atBeamSize, ...measured(metric),
    };
  });
}

function eosFigure() {
  figure("eos-positions", () => {
    const { beam_sizes: sizes, positions, sentences } = data.eos_positions[state.set];
    scope("eos-positions", `${state.set}, mean step over ${plural(sentences, "sentence")} that have three at every beam size`);
    const looks = [["circle", ""], ["diamond", "6 3"], ["up", "2 3"]];
    return {
      label: "Mean step of the first three ends against beam size", height: 260,
      series: ["first", "second", "third"].map((name, rank) => ({
        label: `${name} </s>`, look: { colour: `var(--end${rank})`, shape: looks[rank][0], dash: looks[rank][1] },
        points: sentences ? sizes.map((size, place) => ({ x: size, y: positions[place][rank] })) : [],
      })),
      x: beamSizeAxis(), y: { span: 2 }, head: atBeamSize, write: (value) => `step ${fixed(value, 1)}`,
      overlay: (x, y) => ["first", "second", "third"].map((name, rank) =>
        svg("text", { x: x(sizes[0]), y: y(positions[0][rank]) - 9, class: "name" }, name)),
    };
  });
}

function methodsFigure() {
  figure("methods", () => {
    scope("methods", setScope(state.set));
    return {
      label: `${METRICS[state.metric].label} of every method against beam size`, height: 380,
      series: linesOf((name) => curve(name, state.metric)), x: beamSizeAxis(), head: atBeamSize, ...measured(state.metric),
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
    scope("cost", `${setScope(state.set)}; the grey steps join what nothing cheaper beats`);
    const series = linesOf((name, label) => data.curves[state.set][name].map((row) => {
      const rows = ["bleu", "model_rows", "steps"].map((key) => ({ label: METRICS[key].label, value: written(key, row[key]) }));
      return { x: row.model_rows, y: row.bleu, tip: { head: `${label}, beam size ${row.beam_size}`, rows } };
    }));
    return {
      label: "BLEU against model rows for a sentence", height: 380, near: true, series,
      x: { kind: "decades", label: "model rows for a sentence" }, y: METRICS.bleu,
      decorate: (x, y) => frontier(series.flatMap((each) => each.points), x, y),
    };
  });
  legend("cost", [...methods.keys()]);
}

/** Gains over length norm with their intervals; those of a bin stand beside each other. */
function gainsFigure() {
  const bins = () => data.gains[state.set], names = Object.keys(bins()[0].gains);
  const signed = (value) => (value < 0 ? "" : "+") + fixed(value, 2);
  const at = (place, name) => place + 0.6 * ((names.indexOf(name) + 0.5) / names.length - 0.5);
  const point = (name) => ({ label, sentences, gains }, place) => {
    const { bleu, low, high } = gains[name];
    const rows = [["BLEU above length norm", signed(bleu)], ["95 % interval", `${signed(low)} to ${signed(high)}`],
      ["sentences", fixed(sentences, 0)]];
    const tip = { head: `${labelOf(name)}, ${label}`, rows: rows.map(([what, value]) => ({ label: what, value })) };
    return { x: at(place, name), y: bleu, low, high, tip };
  };
  figure("gains", () => {
    scope("gains", `${setScope(state.set)}, beam size ${data.display_beam_size}`);
    const series = names.filter((name) => !state.hidden.has(name)).map((name) =>
      ({ name, label: labelOf(name), look: lookOf(name), line: false, points: bins().map(point(name)) }));
    return {
      label: "BLEU above length norm by how short its outputs are", height: 340, near: true, series,
      x: {
        kind: "whole", label: "length of length norm's output / expected length", values: [-0.5, bins().length - 0.5],
        write: (place) => bins()[place].label,
      },
      y: { span: 2, reference: 0, values: series.flatMap(({ points }) => points.flatMap(({ low, high }) => [low, high])) },
      decorate: (x, y) => series.flatMap(({ look, points }) => points.map((each) =>
        coloured(svg("line", { x1: x(each.x), x2: x(each.x), y1: y(each.low), y2: y(each.high), class: "interval" }), look))),
    };
  });
  legend("gains", names);
}

function decileFigure(id, metric) {
  const tenths = Object.values(data.deciles)[0];
  figure(id, () => {
    scope(id, `test, beam size ${data.display_beam_size}`);
    return {
      label: `${METRICS[metric].label} from short to long sources`, height: 280,
      series: linesOf((name) => data.deciles[name].map((row, place) => ({ x: place, y: valueOf(metric, row) }))),
      x: {
        kind: "even", label: "mean source length of each tenth", values: [...tenths.keys()],
        write: (place) => fixed(tenths[place].source_length, 0),
      },
      head: (place) => `${fixed(tenths[place].source_length, 1)} tokens, ${plural(tenths[place].sentences, "sentence")}`,
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

function stoppingFigure() {
  const names = [...new Set(data.stop_cells.map((cell) => cell.method))], stops = [...new Set(data.stop_cells.map((cell) => cell.stop))];
  heatFigure("stops", "Scores and stopping rules", () => {
    const metric = state.stopMetric;
    scope("stops", `test, beam size ${data.display_beam_size}`);
    const cells = names.map((name) => stops.map((stop) => {
      const cell = data.stop_cells.find((each) => each.method === name && each.stop === stop);
      return cell && valueOf(metric, { ...cell.measures, lost: cell.lost });
    }));
    return { corner: "score", rows: names.map(named), columns: stops, cells, metric };
  });
}

function maxLengthFigure() {
  const cells = data.max_length_cells, within = data.references_within;
  const means = [...new Map(cells.map((cell) => [cell.max_length, cell.mean_max_length]))].sort((a, b) => a[1] - b[1]);
  const names = means.map(([name]) => name);
  const pairs = [...new Set(cells.map((cell) => `${cell.method} ${cell.stop}`))].map((pair) => pair.split(" "));
  const points = (method, stop) => cells.filter((cell) => cell.method === method && cell.stop === stop)
    .map((cell) => ({ x: names.indexOf(cell.max_length), y: valueOf(state.lengthMetric, cell.measures) })).sort((a, b) => a.x - b.x);
  const series = ([name, stop]) => {
    const look = { ...lookOf(name), dash: stop === "optimal" ? "" : "1.5 4" };
    return { name, label: labelOf(name) + (stop === "optimal" ? "" : `, ${stop}`), look, points: points(name, stop) };
  };
  figure("max-length", () => {
    const dotted = pairs.some(([, stop]) => stop !== "optimal") ? "; solid: stopped by the bound, dotted: by predicted-horizon" : "";
    scope("max-length", `${setScope("dev")}, beam size ${data.comparison_beam_size}${dotted}`);
    return {
      label: `${METRICS[state.lengthMetric].label} under every maximum length`, height: 360,
      series: pairs.filter(([name]) => !state.hidden.has(name)).map(series),
      x: {
        kind: "even", label: "maximum length R and its mean", values: [...names.keys()], slant: true,
        write: (place) => `${names[place]} (${fixed(means[place][1], 0)})`,
      },
      head: (place) => `${names[place]}: ${fixed(means[place][1], 1)} tokens on average, `
        + `${fixed(100 * within[names[place]], 0)} % of the references fit`,
      ...measured(state.lengthMetric),
    };
  });
  legend("max-length", [...new Set(pairs.map(([name]) => name))]);
}

/** A figure for each parameter that is tuned alone, with all its methods, and one for each two tuned together. */
function tuningFigures() {
  const curves = Object.values(data.tuning)[0], host = byId("tuned");
  const add = (id, title) => host.append(html("figure", { id }, html("figcaption", {}, `${title} `, html("span", { class: "scope" }))));
  for (const parameter of new Set(curves.filter((curve) => curve.parameters.length === 1).flatMap((curve) => curve.parameters))) {
    add(`tuned-${parameter}`, capital(parameter));
    parameterFigure(`tuned-${parameter}`, parameter);
  }
  for (const { method, parameters } of curves.filter((curve) => curve.parameters.length === 2)) {
    add(`tuned-${method}`, `${labelOf(method)}, ${parameters.join(" and ")}`);
    pairFigure(`tuned-${method}`, method);
  }
}

function parameterFigure(id, parameter) {
  const all = () => data.tuning[state.group].filter(({ parameters }) => parameters.length === 1 && parameters[0] === parameter);
  const curves = () => all().filter(({ method }) => !state.hidden.has(method));
  const point = ({ bleu, best }) => ([value], place) =>
    ({ x: value, y: bleu[place], size: value === best[0] ? 4.6 : 2.2, ring: value === best[0] });
  const perceptron = (x, box) => ({ method, perceptron: value }) => {
    const left = Math.max(box.left, Math.min(box.right, x(value)));
    const title = svg("title", {}, `${labelOf(method)}, perceptron: ${fixed(value, 2)}`);
    const bar = svg("line", { x1: left, x2: left, y1: box.bottom - 16, y2: box.bottom, class: "perceptron" }, title);
    return coloured(bar, lookOf(method));
  };
  const found = (curve) => curve.perceptron !== null;
  figure(id, () => {
    scope(id, `large mark: best value${all().some(found) ? "; bar on the axis: found by the perceptron" : ""}`);
    return {
      label: `Dev BLEU against ${parameter}`, height: 320,
      series: curves().map((curve) => ({
        name: curve.method, label: labelOf(curve.method), look: lookOf(curve.method), points: curve.values.map(point(curve)),
      })),
      x: { kind: "linear", label: parameter, write: (value) => fixed(value, 1) }, head: (value) => `${parameter} = ${fixed(value, 2)}`,
      overlay: (x, y, box) => curves().filter(found).map(perceptron(x, box)),
      ...measured("bleu"),
    };
  });
  legend(id, all().map(({ method }) => method));
}

function pairFigure(id, method) {
  heatFigure(id, labelOf(method), () => {
    const { parameters, values, bleu, best } = data.tuning[state.group].find((curve) => curve.method === method);
    const [down, across] = [0, 1].map((part) => [...new Set(values.map((value) => value[part]))]);
    const cells = down.map((one) => across.map((other) => bleu[values.findIndex(([a, b]) => a === one && b === other)]));
    scope(id, `best: ${parameters.map((name, part) => `${name} = ${best[part]}`).join(", ")}`);
    return {
      corner: parameters.join(" \\ "), rows: down.map(String), columns: across.map(String), cells, metric: "bleu",
      best: [down.indexOf(best[0]), across.indexOf(best[1])],
    };
  });
}

// ---- sentences

const seen = data.sentences.map((sentence, index) => {
  const own = sentence.choices[base.name].length;
  const closest = sentence.reference_lengths.reduce((best, each) => (Math.abs(each - own) < Math.abs(best - own) ? each : best));
  const outputs = new Set(Object.values(sentence.choices).map((choice) => choice.text)).size;
  const rows = Math.max(...Object.values(sentence.choices).map((choice) => choice.model_rows));
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
    sentence.expected_length === null ? null : `expected length ${fixed(sentence.expected_length, 1)}`,
    `maximum length ${sentence.max_length}`, `references of ${sentence.reference_lengths.join(", ")} tokens`,
  ];
  const shown = html("span", { class: "scope" }, `the ${sentence.points.length} most likely, beam size ${data.display_beam_size}`);
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
  else reading.append(html("p", { class: "note" }, "Nothing finished within the maximum length."));
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
    const choice = sentence.choices[name], [certificate, meaning] = CERTIFICATES[choice.certificate];
    const numbers = [choice.length, choice.score === null ? "–" : fixed(choice.score, 3), choice.steps, fixed(choice.model_rows, 0)];
    return html("tr", {}, html("th", { scope: "row" }, named(name)),
      ...numbers.map((value) => html("td", { class: "number" }, String(value))),
      html("td", {}, html("span", { class: `certificate ${choice.certificate.toLowerCase()}`, title: meaning }, certificate)));
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
switcher(byId("bar"), "Beam sizes", [["log", "log"], ["even", "even"]], state.spacing, setter("spacing"));
switcher(byId("group-bar"), "Tuned for beam sizes", Object.entries(data.groups).map(([group, sizes]) => [group, sizes.join(", ")]),
  state.group, setter("group"));
selector("metric", BY_BEAM_SIZE, "metric", "methods");
selector("stop-metric", ["bleu", "lost", "ratio", "proved", "steps", "model_rows"], "stopMetric", "stops");
selector("length-metric", BY_BEAM_SIZE, "lengthMetric", "max-length");
curseFigure("curse-bleu", "bleu");
curseFigure("curse-penalty", "brevity_penalty");
curseFigure("curse-ratio", "ratio");
eosFigure();
methodsFigure();
costFigure();
decileFigure("decile-bleu", "bleu");
decileFigure("decile-ratio", "ratio");
stoppingFigure();
const without = (id) => document.querySelectorAll(`#${id}, [href="#${id}"]`).forEach((each) => each.remove());
if (Object.values(data.gains).some((bins) => bins.length > 1)) gainsFigure();
else without("gains");
if (data.max_length_cells.length) maxLengthFigure();
else without("max-lengths");
if (data.tuning[state.group].length) tuningFigures();
else without("tuning");
byId("sentences-lead").textContent =
  `All ${plural(seen.length, "sentence")} of test at beam size ${data.display_beam_size}, with what every method chooses.`;
sentenceBrowser();
copyButton();
redraw();
