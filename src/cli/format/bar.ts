const eighths = ['', '▏', '▎', '▍', '▌', '▋', '▊', '▉']

/** A bar of exactly `columns`, filled to `share` (0 to 1), in steps of an eighth of a column. */
export function bar(share: number, columns: number): { readonly filled: string; readonly rest: string } {
  const filledEighths = Math.round(Math.min(1, Math.max(0, share)) * columns * 8)
  const whole = Math.floor(filledEighths / 8)
  const filled = '█'.repeat(whole) + (eighths[filledEighths % 8] ?? '')
  return { filled, rest: '░'.repeat(columns - filled.length) }
}
