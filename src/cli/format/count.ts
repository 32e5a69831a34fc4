/** `1,234,567`. */
export function formatCount(count: number): string {
  return String(Math.round(count)).replace(/\B(?=(\d{3})+$)/g, ',')
}

/** At most five characters: `999`, `12.3k`, `4.56M`, `1.20G`. */
export function formatCompactCount(count: number): string {
  if (count < 999.5) return String(Math.round(count))
  for (const [unit, size] of [
    ['k', 1e3],
    ['M', 1e6],
    ['G', 1e9],
  ] as const) {
    const scaled = count / size
    if (scaled < 999.5 || unit === 'G') return `${scaled.toFixed(scaled < 9.995 ? 2 : scaled < 99.95 ? 1 : 0)}${unit}`
  }
  return String(count)
}

/** `1 task`, `2 tasks`. */
export function formatQuantity(count: number, noun: string): string {
  return `${formatCount(count)} ${noun}${count === 1 ? '' : 's'}`
}

/** `50%`, `12.5%`; a few do not look like none, nor all but a few like all. */
export function formatShare(part: number, whole: number): string {
  if (whole === 0) return '–'
  const percent = (100 * part) / whole
  if (Number.isInteger(percent)) return `${percent}%`
  return percent < 0.05 ? '<0.1%' : `${Math.min(percent, 99.9).toFixed(1)}%`
}
