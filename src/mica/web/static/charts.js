// Charts of ECharts, in the colours of the page: each element names what it draws and where its data is.
"use strict";

(() => {
  const probe = document.createElement("span");
  probe.hidden = true;
  const colour = (name) => { probe.style.color = `var(--${name})`; document.body.append(probe); const found = getComputedStyle(probe).color; probe.remove(); return found; };
  const palette = () => Object.fromEntries(["ink", "ink-2", "ink-3", "line", "line-strong", "surface", "sunken", "accent", "session", "week", "epoch", "bad", "good"].map((name) => [name, colour(name)]));
  // The page's own colours, mixed: canvas knows nothing of color-mix().
  const numbers = (tone) => tone.match(/[\d.]+/g).slice(0, 3).map(Number);
  const mixed = (over, under, share) => { const [a, b] = [numbers(over), numbers(under)]; return `rgb(${a.map((part, place) => Math.round(part * share + b[place] * (1 - share))).join(",")})`; };
  const font = "Inter, system-ui, sans-serif";
  const tip = (tones) => ({ renderMode: "richText", confine: true, backgroundColor: tones.surface, borderColor: tones["line-strong"], textStyle: { color: tones.ink, fontFamily: font, fontSize: 12 } });

  const draw = {
    evolution(data, tones) {
      const axis = { axisLine: { lineStyle: { color: tones["line-strong"] } }, axisTick: { show: false }, axisLabel: { color: tones["ink-3"] }, splitLine: { lineStyle: { color: tones.line } } };
      const bar = (name, key, tone) => ({ name, type: "bar", stack: "told", barMaxWidth: 18, data: data.map((week) => week[key]), itemStyle: { color: tone } });
      return {
        textStyle: { fontFamily: font }, tooltip: { trigger: "axis", ...tip(tones) }, aria: { enabled: true },
        legend: { bottom: 0, icon: "roundRect", itemWidth: 10, itemHeight: 10, textStyle: { color: tones["ink-2"] } },
        grid: { left: 8, right: 8, top: 28, bottom: 36, containLabel: true },
        xAxis: { type: "category", data: data.map((week) => week.label), ...axis, splitLine: { show: false } },
        yAxis: [
          { type: "value", name: "trails known", nameTextStyle: { color: tones["ink-3"], align: "left" }, minInterval: 1, ...axis, axisLine: { show: false } },
          { type: "value", name: "in the week", nameTextStyle: { color: tones["ink-3"], align: "right" }, minInterval: 1, ...axis, axisLine: { show: false }, splitLine: { show: false } },
        ],
        series: [
          { name: "known", type: "line", smooth: 0.25, symbol: "none", data: data.map((week) => week.known), lineStyle: { color: tones.accent, width: 2 }, itemStyle: { color: tones.accent }, areaStyle: { color: tones.accent, opacity: 0.1 } },
          ...[bar("named", "crystallized", tones.epoch), bar("renewed", "refreshed", tones.week), bar("used", "used", tones.session)].map((each) => ({ ...each, yAxisIndex: 1 })),
        ],
      };
    },

    map(data, tones, element) {
      const chosen = element.dataset.way === undefined || element.dataset.way === "" ? null : Number(element.dataset.way);
      const on = (spot) => (chosen === null ? (spot.trails || []).length > 0 : (spot.trails || []).includes(chosen));
      const most = Math.max(1, ...leaves(data.spots).map((spot) => (spot.trails || []).length));
      const weight = (spot) => (chosen === null ? 0.2 + 0.6 * (spot.trails.length / most) : 0.8);
      const node = (spot) => spot.children ? { name: spot.name, path: spot.path, value: spot.value, children: spot.children.map(node) } : {
        name: spot.name, path: spot.path, value: spot.value, tokens: spot.tokens || 0, trails: spot.trails || [],
        itemStyle: { color: on(spot) ? mixed(tones.accent, tones.surface, weight(spot)) : mixed(tones["line-strong"], tones.surface, 0.55) },
        label: { color: on(spot) && weight(spot) > 0.5 ? tones.surface : tones.ink },
      };
      return {
        textStyle: { fontFamily: font }, aria: { enabled: true },
        tooltip: { ...tip(tones), formatter: ({ data: spot }) => spot.path === undefined ? "" : [spot.path, `opened in ${spot.value} turns`, spot.tokens ? `${spot.tokens.toLocaleString()} tokens read` : "", ...(spot.trails || []).slice(0, 5).map((number) => data.ways[number].name)].filter(Boolean).join("\n") },
        series: [{
          type: "treemap", roam: false, nodeClick: "zoomToNode", width: "100%", height: "92%", top: 0, left: 0, visibleMin: 40, data: data.spots.map(node),
          breadcrumb: { bottom: 0, height: 22, itemStyle: { color: tones.sunken, borderColor: tones.line, textStyle: { color: tones["ink-2"], fontFamily: font } }, emphasis: { itemStyle: { color: tones.line, textStyle: { color: tones.ink } } } },
          label: { fontSize: 11, fontFamily: font, overflow: "truncate" },
          upperLabel: { show: true, height: 20, color: tones["ink-2"], fontSize: 11, fontFamily: font },
          itemStyle: { borderColor: tones.surface, borderWidth: 1, gapWidth: 1 },
          levels: [{ itemStyle: { borderColor: tones.surface, borderWidth: 0, gapWidth: 3 } }, ...[0, 1, 2, 3, 4].map(() => ({ itemStyle: { borderColor: tones.sunken, borderWidth: 2, gapWidth: 1 } }))],
        }],
      };
    },

    timeline(data, tones) {
      const depths = [...Array(1 + Math.max(...data.map((point) => point.value[1]))).keys()];
      return {
        textStyle: { fontFamily: font }, aria: { enabled: true }, tooltip: { ...tip(tones), formatter: ({ data: point }) => [point.name, point.said, `+${point.value[0]} s`].filter(Boolean).join("\n") },
        grid: { left: 8, right: 24, top: 8, bottom: 8, containLabel: true },
        xAxis: { type: "value", min: 0, position: "bottom", axisLine: { show: true, onZero: false, lineStyle: { color: tones["line-strong"] } }, axisLabel: { color: tones["ink-3"], formatter: "{value} s" }, splitLine: { lineStyle: { color: tones.line } } },
        yAxis: { type: "category", inverse: true, data: depths.map((depth) => `depth ${depth}`), axisLabel: { color: tones["ink-3"], margin: 16 }, axisLine: { show: false }, axisTick: { show: false }, splitLine: { show: false } },
        series: [{ type: "scatter", symbolSize: (_, point) => (point.data.asked ? 14 : 9), data: data.map((point) => ({ ...point, itemStyle: { color: point.error ? tones.bad : point.asked ? tones.accent : tones.session, opacity: 0.85 } })) }],
      };
    },
  };

  const leaves = (spots) => spots.flatMap((spot) => (spot.children ? leaves(spot.children) : [spot]));

  function show(element) {
    const data = JSON.parse(document.getElementById(element.dataset.from).textContent);
    const chart = echarts.getInstanceByDom(element) || echarts.init(element);
    const still = matchMedia("(prefers-reduced-motion: reduce)").matches;
    chart.setOption({ animation: !still, animationDuration: 300, ...draw[element.dataset.chart](data, palette(), element) }, true);
  }

  const all = () => document.querySelectorAll("[data-chart]").forEach(show);
  document.addEventListener("htmx:afterSettle", all);
  document.addEventListener("mica:theme", all);
  document.addEventListener("change", (change) => {
    if (!change.target.matches("[data-way-of]")) return;
    const element = document.getElementById(change.target.dataset.wayOf);
    element.dataset.way = change.target.value;
    show(element);
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", all);
  addEventListener("resize", () => document.querySelectorAll("[data-chart]").forEach((element) => { const chart = echarts.getInstanceByDom(element); if (chart) chart.resize(); }));
  addEventListener("DOMContentLoaded", all);
})();
