const units = ['B', 'kB', 'MB', 'GB', 'TB'] as const

/** `812 B`, `1.4 MB`: decimal, as disks are sold. */
export function formatBytes(bytes: number): string {
  let value = bytes
  let unit = 0
  while (value >= 999.5 && unit < units.length - 1) {
    value /= 1000
    unit += 1
  }
  return `${unit === 0 || value >= 99.95 ? Math.round(value) : value.toFixed(1)} ${units[unit]}`
}
