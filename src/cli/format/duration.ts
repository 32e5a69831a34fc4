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
