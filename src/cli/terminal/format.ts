import type { ScoreEstimate } from '../../eval/index.ts'

const whole = new Intl.NumberFormat('en', { maximumFractionDigits: 0 })
const compact = new Intl.NumberFormat('en', { notation: 'compact', maximumSignificantDigits: 3 })

export function formatCount(count: number): string {
  return whole.format(count)
}

/** At most five characters: `999`, `12.3k`, `4.56M`, `1.2B`. */
export function formatCompactCount(count: number): string {
  return compact.format(count).replace('K', 'k')
}

export function formatQuantity(count: number, noun: string): string {
  return `${formatCount(count)} ${noun}${count === 1 ? '' : 's'}`
}

/** `50%`, `12.5%`; a few do not look like none, nor all but a few like all. */
export function formatShare(part: number, all: number): string {
  if (all === 0) return '–'
  const percent = (100 * part) / all
  if (Number.isInteger(percent)) return `${percent}%`
  return percent < 0.05 ? '<0.1%' : `${Math.min(percent, 99.9).toFixed(1)}%`
}

/** `1,234/s`, `12.7/s`; rates below one a second are per minute: `6.4/min`. */
export function formatRate(perSecond: number): string {
  if (!Number.isFinite(perSecond) || perSecond <= 0) return '0/s'
  if (perSecond >= 99.95) return `${formatCount(perSecond)}/s`
  if (perSecond >= 0.995) return `${perSecond.toFixed(1)}/s`
  return `${(perSecond * 60).toFixed(1)}/min`
}

/** US dollars with as many digits as matter: `$12.34`, `$0.0421`; `cost unknown` if no price is known. */
export function formatMoney(usd: number | null): string {
  if (usd === null) return 'cost unknown'
  if (usd === 0) return '$0'
  if (usd >= 1) return `$${usd.toFixed(2)}`
  return usd < 0.00005 ? '<$0.0001' : `$${usd.toFixed(4)}`
}

/** Of fewer tasks an interval says next to nothing: with two it may be wider than rewards from 0 to 1 can differ. */
const minTasks = 5

/** Three decimals, fewer for large values; a dash if there is no value. */
export function formatScore(score: number): string {
  if (!Number.isFinite(score)) return '–'
  const size = Math.abs(score)
  return score.toFixed(size >= 1000 ? 0 : size >= 100 ? 1 : size >= 10 ? 2 : 3)
}

/** `0.812 [0.776, 0.844]`, or only the mean if its interval is not worth showing. */
export function formatEstimate(estimate: ScoreEstimate | undefined): string {
  if (!estimate) return '–'
  const { mean, low, high } = estimate
  return hasEnoughTasks(estimate)
    ? `${formatScore(mean)} [${formatScore(low)}, ${formatScore(high)}]`
    : formatScore(mean)
}

export function intervalNote(estimate: ScoreEstimate | undefined): string {
  return estimate && hasEnoughTasks(estimate) ? '95% interval, clustered by task' : 'too few tasks for an interval'
}

function hasEnoughTasks({ tasks }: ScoreEstimate): boolean {
  return tasks >= minTasks
}

const byteUnits = ['B', 'kB', 'MB', 'GB', 'TB'] as const

/** `812 B`, `1.4 MB`: decimal, as disks are sold. */
export function formatBytes(bytes: number): string {
  let value = bytes
  let unit = 0
  while (value >= 999.5 && unit < byteUnits.length - 1) {
    value /= 1000
    unit += 1
  }
  return `${unit === 0 || value >= 99.95 ? Math.round(value) : value.toFixed(1)} ${byteUnits[unit]}`
}

const unitMs = { ms: 1, s: 1000, m: 60_000, h: 3_600_000, d: 86_400_000 } as const

/** `340ms`, `12.4s`, `3m 05s`, `2h 05m`, `3d 4h`; a dash if there is no value. */
export function formatDuration(ms: number): string {
  if (!Number.isFinite(ms)) return '–'
  if (ms < 0.05) return '0ms'
  if (ms < 10) return `${ms.toFixed(1)}ms`
  if (ms < 999.5) return `${Math.round(ms)}ms`
  if (ms < 59_950) return `${(ms / 1000).toFixed(1)}s`
  const seconds = Math.round(ms / 1000)
  if (seconds < 3600) return `${Math.floor(seconds / 60)}m ${twoDigits(seconds % 60)}s`
  const minutes = Math.round(seconds / 60)
  if (minutes < 1440) return `${Math.floor(minutes / 60)}h ${twoDigits(minutes % 60)}m`
  const hours = Math.round(minutes / 60)
  return `${Math.floor(hours / 24)}d ${hours % 24}h`
}

/** An estimate of the time left, in whole seconds: `<1s`, `12s`, `3m 05s`. */
export function formatTimeLeft(ms: number): string {
  if (ms < 1000) return '<1s'
  return ms < 59_500 ? `${Math.round(ms / 1000)}s` : formatDuration(ms)
}

/** `90` (seconds), `500ms`, `90s`, `5m`, `1h30m`, `30d` in milliseconds; undefined for anything else. */
export function parseDurationMs(text: string): number | undefined {
  if (/^\d+(\.\d+)?$/.test(text)) return Number(text) * 1000
  if (!/^(\d+(\.\d+)?(ms|s|m|h|d))+$/.test(text)) return undefined
  let sum = 0
  for (const [, amount, unit] of text.matchAll(/(\d+(?:\.\d+)?)(ms|s|m|h|d)/g)) {
    sum += Number(amount) * unitMs[unit as keyof typeof unitMs]
  }
  return sum
}

function twoDigits(value: number): string {
  return String(value).padStart(2, '0')
}

const relative = new Intl.RelativeTimeFormat('en')
const ageUnits = [
  ['day', 86_400_000],
  ['hour', 3_600_000],
  ['minute', 60_000],
] as const

/** `3 minutes ago`, in the largest unit that fits; `just now` under a minute. */
export function formatAge(at: number, now: number): string {
  const [unit, size] = ageUnits.find(([, ms]) => now - at >= ms) ?? []
  return unit === undefined ? 'just now' : relative.format(-Math.floor((now - at) / size), unit)
}

/** The name of a worker. Quarantine workers, which run suspect rollouts alone, have negative ids. */
export function workerName(id: number): string {
  return id < 0 ? `quarantine worker ${-id}` : `worker ${id}`
}

/** The arguments as a command line, quoted so that a shell reads them back. */
export function shellQuote(args: readonly string[]): string {
  return args
    .map((arg) => (/^[\w@%+=:,./~^-]+$/.test(arg) ? arg : `'${arg.replaceAll("'", String.raw`'\''`)}'`))
    .join(' ')
}
