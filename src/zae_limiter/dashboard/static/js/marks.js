// Small drawings: bars, sparklines, and plots of uPlot.

import { html, useEffect, useRef } from '../vendor/preact.js'
import { levelOf } from './format.js'

const FULL = 74

export function Bar({ limit, label }) {
  const { kind, text, used } = levelOf(limit)
  const part = Math.max(0, Math.min(1, used / 1000))
  const debt = Math.max(0, Math.min(1, used / 1000 - 1))
  return html`<div
    class=${`bar ${kind}`}
    role="meter"
    aria-label=${label}
    aria-valuemin="0"
    aria-valuemax="100"
    aria-valuenow=${Math.round(part * 100)}
    aria-valuetext=${limit.available < 0 ? `in debt: ${text}` : `${text} in use`}
  >
    <i style=${{ width: `${part * FULL}%` }}></i>
    ${debt > 0 && html`<u style=${{ width: `${Math.max(2, debt * (100 - FULL - 1))}%` }}></u>`}
    <s></s>
  </div>`
}

export function Spark({ values, width = 90, height = 30, colour = 'var(--bad)' }) {
  const highest = Math.max(1, ...values)
  const at = (value, index) =>
    `${((index / Math.max(1, values.length - 1)) * width).toFixed(1)} ${(height - 2 - (value / highest) * (height - 4)).toFixed(1)}`
  const line = `M${values.map(at).join('L')}`
  return html`<svg width=${width} height=${height} viewBox=${`0 0 ${width} ${height}`} aria-hidden="true">
    <path d=${`${line}L${width} ${height}L0 ${height}Z`} fill=${colour} opacity="0.16" />
    <path d=${line} fill="none" stroke=${colour} stroke-width="1.4" stroke-linejoin="round" />
  </svg>`
}

const colourOf = (name) => {
  const probe = document.createElement('i')
  probe.style.color = `var(${name})`
  probe.hidden = true
  document.body.append(probe)
  const colour = getComputedStyle(probe).color
  probe.remove()
  return colour
}

const axisFont = '11px system-ui, sans-serif'

function axes(compactNumber) {
  const stroke = colourOf('--soft')
  const grid = { stroke: colourOf('--faint'), width: 1 }
  const twoDigits = (number) => String(number).padStart(2, '0')
  const clock = (splits) =>
    splits.map((seconds) => {
      const when = new Date(seconds * 1000)
      return `${twoDigits(when.getHours())}:${twoDigits(when.getMinutes())}`
    })
  return [
    { stroke, font: axisFont, grid: { show: false }, ticks: { show: false }, size: 24, values: (_, splits) => clock(splits) },
    { stroke, font: axisFont, grid, ticks: { show: false }, size: 46, values: (_, splits) => splits.map(compactNumber) },
  ]
}

// Columns on top of each other. `series`: [{ name, colour, values }], the lowest first; `times` in seconds.
export function Columns({ times, series, height, label, format, theme, most }) {
  const place = useRef(null)
  useEffect(() => {
    const host = place.current
    const sums = times.map(() => 0)
    const stacked = series.map(({ values }) => values.map((value, index) => (sums[index] += value)))
    const order = series.map((_, index) => index).reverse() // the highest is drawn first, the others over it
    const step = times.length > 1 ? times[1] - times[0] : 60
    const options = {
      width: Math.max(120, host.clientWidth),
      height,
      padding: [8, 16, 0, 0],
      legend: { show: false },
      cursor: { show: false },
      scales: {
        x: { time: true, range: [times[0] - step / 2, times[times.length - 1] + step / 2] },
        y: { range: (_, low, high) => [0, Math.max(most || 4, high * 1.08)] },
      },
      axes: axes(format),
      series: [
        {},
        ...order.map((index) => ({
          fill: colourOf(series[index].colour),
          stroke: colourOf(series[index].colour),
          width: 0,
          points: { show: false },
          paths: window.uPlot.paths.bars({ size: [0.78, 40], radius: 0 }),
        })),
      ],
    }
    const plot = new window.uPlot(options, [times, ...order.map((index) => stacked[index])], host)
    const resize = new ResizeObserver(() => plot.setSize({ width: Math.max(120, host.clientWidth), height }))
    resize.observe(host)
    return () => {
      resize.disconnect()
      plot.destroy()
    }
  }, [JSON.stringify([times, series, height, most]), theme])
  return html`<div class="plot" role="img" aria-label=${label}><div ref=${place}></div></div>`
}
