import { formatCount } from './count.ts'

/** `1,234/s`, `12.7/s`; rates below one a second are per minute: `6.4/min`. */
export function formatRate(perSecond: number): string {
  if (!Number.isFinite(perSecond) || perSecond <= 0) return '0/s'
  if (perSecond >= 99.95) return `${formatCount(perSecond)}/s`
  if (perSecond >= 0.995) return `${perSecond.toFixed(1)}/s`
  return `${(perSecond * 60).toFixed(1)}/min`
}
