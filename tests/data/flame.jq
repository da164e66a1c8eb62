# A flame graph as a Vega-Lite specification, from folded stacks: `jq -Rnf flame.jq FILE`.
#
# Sorted stacks lie side by side, so those that begin alike are neighbours: at each depth every
# run of them is one bar.
[inputs | capture("^(?<stack>.*) (?<ps>[0-9]+)$") | {frames: (.stack / ";"), ps: (.ps | tonumber)}]
| sort_by(.frames)
| [foreach .[] as $each ({to: 0}; {frames: $each.frames, from: .to, to: (.to + $each.ps)})]
| (.[-1].to / 100) as $percent
| [range(map(.frames | length) | max) as $depth
   | map(select(.frames[$depth])) | group_by(.frames[:$depth + 1])[]
   | (.[0].frames[$depth] / "/")[-1] as $line
   | [.[0].from, .[-1].to | . / $percent * 1000 | round / 1000] as [$from, $to]
   | {$depth, $from, $to, file: ($line / ":")[0],
      # What fits in: a percent of the width is room for a character and a half.
      label: $line[:($to - $from) * 1.5 | floor]}]
| {
    width: 960,
    height: {step: 17},
    config: {aria: false, axis: {grid: false}, view: {stroke: null}},
    data: {values: .},
    encoding: {
      x: {field: "from", type: "quantitative", scale: {domain: [0, 100]}, title: "% of the time of all ops"},
      y: {field: "depth", type: "ordinal", sort: "descending", axis: null}
    },
    layer: [
      {
        mark: {type: "bar", stroke: "white"},
        encoding: {
          x2: {field: "to"},
          color: {field: "file", type: "nominal", scale: {scheme: "tableau20"}}
        }
      },
      {
        mark: {type: "text", align: "left", dx: 3, fontSize: 10},
        encoding: {text: {field: "label"}}
      }
    ]
  }
