# A roofline plot as a Vega-Lite specification, of what the mode `roofline` prints.
#
# Of the lines that are held against the bf16 peak those that take at least a percent of the
# time. Flops a picosecond are TFLOPS, and so are GiB/s times flops a byte in units of 2^30 / 10^12.
.peaks_used as $peaks
| ($peaks.peak_hbm_gibps * 1.073741824e-3) as $hbm
| (.step_summary.rooflined_dur_ps / 100) as $percent
| def digits: if . > 0 then pow(10; 3 - (log10 | floor)) as $scale | . * $scale | round / $scale else 0 end;
  [.groups[]
   | select(.dtype == "bf16" and .flops_sum > 0 and .arithmetic_intensity and .total_dur_ps >= $percent)
   | {
       line: (.kernel // (.source_user // .source_inner // .agg_key | split("/")[-1])),
       intensity: .arithmetic_intensity,
       tflops: (.flops_sum / .total_dur_ps | digits),
       ms: (.total_dur_ps / 1e9 | digits),
       bound
     }]
| sort_by(-.ms) as $points
| $peaks.ridge_points.bf16 as $ridge
| ($points | map(.intensity) + [$ridge] | [min / 2, $ridge, max * 2]) as $ends
| {
    width: 640,
    height: 320,
    config: {aria: false, axis: {grid: false}},
    encoding: {
      x: {field: "intensity", type: "quantitative", scale: {type: "log", nice: false}, title: "flops a byte"},
      y: {field: "tflops", type: "quantitative", scale: {type: "log"}, title: "TFLOPS"}
    },
    layer: [
      {
        data: {values: [$ends[] | {intensity: ., tflops: ([. * $hbm, $peaks.peak_tflops_bf16] | min)}]},
        mark: {type: "line", color: "black"}
      },
      {
        data: {values: $points},
        mark: {type: "point", filled: true, opacity: 0.8},
        encoding: {
          color: {field: "line", type: "nominal", sort: null, scale: {scheme: "tableau20"}},
          shape: {field: "bound", type: "nominal", scale: {domain: ["compute", "memory"], range: ["circle", "square"]}},
          size: {field: "ms", type: "quantitative", scale: {range: [30, 600]}}
        }
      }
    ]
  }
