/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The style of a report. Light, dark and paper; one column on a phone. Text has a contrast of at least 4.5 to 1 on its
 * ground in both schemes. Colours tell sources apart beside words and patterns, never alone: casts are hatched one way,
 * fallbacks crosswise, fills dotted, derives hatched the other way.
 */
#include "replayer/report_cli.h"

const char lp_report_css[] =
    ":root{color-scheme:light dark;--ground:#fff;--card:#f6f7f9;--ink:#1b1f24;--soft:#57606a;--line:#d0d7de;"
    "--deny:#b3261e;--warn:#8a5300;--fine:#1a7f37;--bar:#4477aa;--bar2:#aa7733;--mark:#0b0d10}\n"
    "@media (prefers-color-scheme:dark){:root{--ground:#0f1318;--card:#181d24;--ink:#e6edf3;--soft:#9aa6b2;"
    "--line:#30363d;--deny:#ff8a80;--warn:#f0b35a;--fine:#6fdd8b;--bar:#6699cc;--bar2:#d09a4e;--mark:#e6edf3}}\n"
    "*{box-sizing:border-box}\n"
    "body{margin:0 auto;padding:1rem;max-width:72rem;background:var(--ground);color:var(--ink);"
    "font:16px/1.45 system-ui,sans-serif}\n"
    "h1{font-size:1.5rem;margin:.2rem 0}h2{font-size:1.2rem;margin:2rem 0 .5rem;border-bottom:1px solid "
    "var(--line)}h3{font-size:1rem;margin:0;font-weight:600}\n"
    "p{margin:.4rem "
    "0}p,dd,.what{overflow-wrap:anywhere}.soft{color:var(--soft)}code,.name{font-family:ui-monospace,monospace;font-"
    "size:.9em;"
    "overflow-wrap:anywhere}\n"
    "nav{display:flex;flex-wrap:wrap}nav a{margin-right:1rem;white-space:nowrap}a{color:inherit}\n"
    "dl{display:grid;grid-template-columns:repeat(auto-fit,minmax(9rem,1fr));gap:.5rem;margin:1rem 0}"
    "dl div{background:var(--card);border:1px solid var(--line);border-radius:6px;padding:.4rem .6rem}"
    "dt{color:var(--soft);font-size:.85rem}dd{margin:0;font-weight:600}\n"
    ".scroll{overflow-x:auto}table{border-collapse:collapse;width:100%;font-size:.9rem}"
    "th,td{text-align:left;padding:.3rem .6rem .3rem 0;border-bottom:1px solid var(--line);vertical-align:top}"
    "th{color:var(--soft);font-weight:600}.n{text-align:right;white-space:nowrap;font-variant-numeric:tabular-nums}\n"
    ".deny{color:var(--deny);font-weight:600}.warn{color:var(--warn);font-weight:600}.allow{color:var(--soft)}"
    ".fine{color:var(--fine);font-weight:600}\n"
    ".row{background:var(--card);border:1px solid var(--line);border-radius:6px;padding:.6rem;margin:.6rem 0;"
    "break-inside:avoid}.changed{border-left:4px solid var(--warn)}\n"
    "svg.strip{display:block;width:100%;height:1.6rem;margin:.4rem 0 .1rem;border:1px solid var(--line)}\n"
    ".ends{display:flex;justify-content:space-between;color:var(--soft);font-size:.8rem}\n"
    "ul.key{list-style:none;padding:0;margin:.4rem 0 0;font-size:.9rem}ul.key li{margin:.15rem 0}"
    "svg.chip{width:1.4rem;height:.8rem;vertical-align:-.05rem;margin-right:.4rem;border:1px solid var(--line)}\n"
    ".bar{display:block;height:.7rem;min-width:1px;background:var(--bar);border-radius:2px}"
    ".bar.old{background:var(--bar2);height:.3rem;margin-top:2px}td.wide{min-width:8rem;width:40%}\n"
    ".h{opacity:.62}.fill{fill:#999}.none{fill:var(--ground)}.over{stroke:var(--mark)}\n"
    "tr{break-inside:avoid}td.name{min-width:10rem}td.what{min-width:18rem;width:50%}.unit{display:none}"
    "td code,td .warn,.level{white-space:nowrap}td .path{white-space:normal}\n"
    "@media (max-width:40rem){body{padding:.6rem;font-size:15px}th,td{padding-right:.4rem}"
    "table.cards thead{display:none}table.cards tr{display:block;padding:.5rem 0;border-bottom:1px solid var(--line)}"
    "table.cards td{display:inline-block;border:0;padding:0 .6rem 0 0}"
    "table.cards td.name,table.cards td.what,table.cards td.wide{display:block;width:auto;padding:.1rem 0}"
    ".unit{display:inline}}\n"
    "@media print{:root{color-scheme:light;--ground:#fff;--card:#fff;--ink:#000;--soft:#444;--line:#999;--deny:#9b1c14;"
    "--warn:#6b4000;--fine:#116329;--bar:#4477aa;--bar2:#aa7733;--mark:#000}body{max-width:none;padding:0;"
    "font-size:10pt}h2,#map+p{break-after:avoid}nav{display:none}.scroll{overflow:visible}"
    "*{print-color-adjust:exact}}\n";

const char lp_report_colours[] =
    ".g0{fill:#4477aa}.g1{fill:#ee8833}.g2{fill:#228844}.g3{fill:#aa3377}.g4{fill:#55bbdd}.g5{fill:#ccbb44}"
    ".g6{fill:#774499}.g7{fill:#997733}.g8{fill:#44aa99}.g9{fill:#dd7788}.g10{fill:#6677cc}.g11{fill:#88aa33}"
    ".g12{fill:#bb6644}.g13{fill:#558899}.g14{fill:#996688}.g15{fill:#888}";
