import { describe, expect, it } from 'vitest'
import { formatDuration, parseDurationMs } from './duration.ts'

describe('formatDuration', () => {
  it.each([
    [0, '0ms'],
    [0.42, '0.4ms'],
    [12.6, '13ms'],
    [999.6, '1.0s'],
    [12_440, '12.4s'],
    [59_960, '1m 00s'],
    [185_000, '3m 05s'],
    [3_599_900, '1h 00m'],
    [7_500_000, '2h 05m'],
    [273_600_000, '3d 4h'],
    [Number.NaN, '–'],
  ])('%d is %s', (ms, text) => {
    expect(formatDuration(ms)).toBe(text)
  })
})

describe('parseDurationMs', () => {
  it.each([
    ['90', 90_000],
    ['1.5', 1500],
    ['500ms', 500],
    ['90s', 90_000],
    ['5m', 300_000],
    ['1h30m', 5_400_000],
    ['30d', 2_592_000_000],
  ])('%s is %d ms', (text, ms) => {
    expect(parseDurationMs(text)).toBe(ms)
  })

  it.each(['', 'soon', '5 m', '-5s', '5w', '1h30'])('"%s" is none', (text) => {
    expect(parseDurationMs(text)).toBeUndefined()
  })
})
