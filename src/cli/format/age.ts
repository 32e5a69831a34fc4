const steps = [
  ['day', 86_400_000],
  ['hour', 3_600_000],
  ['minute', 60_000],
] as const

/** `3 minutes ago`, in the largest unit that fits; `just now` under a minute. */
export function formatAge(at: number, now: number): string {
  const ms = now - at
  for (const [unit, size] of steps) {
    const count = Math.floor(ms / size)
    if (count >= 1) return `${count} ${unit}${count === 1 ? '' : 's'} ago`
  }
  return 'just now'
}
