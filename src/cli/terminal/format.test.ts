import { describe, expect, it } from 'vitest'
import {
  formatAge,
  formatCompactCount,
  formatCount,
  formatDuration,
  formatEstimate,
  formatMoney,
  formatQuantity,
  formatRate,
  formatScore,
  formatShare,
  intervalNote,
  parseDurationMs,
  shellQuote,
} from './format.ts'
import { bar, textTable, panel } from './layout.ts'
import { createStyle, fitText, padText, printable, printableLine, textWidth, wantsColor, wrapText } from './text.ts'

const plain = createStyle(false)
const coloured = createStyle(true)

describe('counts', () => {
  it('are grouped, shortened and given as shares', () => {
    expect([0, 999, 1000, 1_234_567].map(formatCount)).toEqual(['0', '999', '1,000', '1,234,567'])
    expect([7, 999, 1000, 12_345, 456_789, 999_700, 4.56e9].map(formatCompactCount)).toEqual([
      '7',
      '999',
      '1k',
      '12.3k',
      '457k',
      '1M',
      '4.56B',
    ])
    expect([formatQuantity(1, 'task'), formatQuantity(2, 'task')]).toEqual(['1 task', '2 tasks'])
    const shares = [
      [1, 1000],
      [2, 8000],
      [53, 100],
      [7, 8],
      [1, 8],
      [999, 1000],
      [7998, 8000],
      [5, 5],
      [0, 5],
      [0, 0],
    ] as const
    expect(shares.map(([part, whole]) => formatShare(part, whole))).toEqual([
      '0.1%',
      '<0.1%',
      '53%',
      '87.5%',
      '12.5%',
      '99.9%',
      '99.9%',
      '100%',
      '0%',
      '–',
    ])
    expect([13_326.4, 99.97, 12.74, 1, 0.25, 0].map(formatRate)).toEqual([
      '13,326/s',
      '100/s',
      '12.7/s',
      '1.0/s',
      '15.0/min',
      '0/s',
    ])
  })
})

describe('money and scores', () => {
  it('have only significant digits', () => {
    expect([null, 0, 0.00001, 0.0421, 12.345].map(formatMoney)).toEqual([
      'cost unknown',
      '$0',
      '<$0.0001',
      '$0.0421',
      '$12.35',
    ])
    expect([0.8123, -12.345, 1234.5, Number.NaN].map(formatScore)).toEqual(['0.812', '-12.35', '1235', '–'])
    const estimate = { mean: 0.5, low: 0.4, high: 0.6, standardError: 0.04, rollouts: 15, tasks: 5 }
    expect(formatEstimate(estimate)).toBe('0.500 [0.400, 0.600]')
    // Student's t is 12.7 with two tasks.
    expect(formatEstimate({ ...estimate, low: -5.853, high: 6.853, tasks: 2 })).toBe('0.500')
    expect(formatEstimate({ ...estimate, low: Number.NaN, high: Number.NaN, tasks: 1 })).toBe('0.500')
    expect(formatEstimate(undefined)).toBe('–')
    expect(intervalNote(estimate)).toBe('95% interval, clustered by task')
    expect(intervalNote({ ...estimate, tasks: 4 })).toBe('too few tasks for an interval')
  })
})

describe('formatAge', () => {
  it('uses the largest unit that fits', () => {
    const ages = [5000, 61_000, 7_200_000, 86_400_000].map((ms) => formatAge(0, ms))
    expect(ages).toEqual(['just now', '1 minute ago', '2 hours ago', '1 day ago'])
  })
})

describe('text width', () => {
  it('counts columns, not characters', () => {
    expect([textWidth('abc'), textWidth('日本'), textWidth('e\u0301'), textWidth(coloured.bad('abc'))]).toEqual([
      3, 4, 1, 3,
    ])
  })

  it('cuts to the width and turns colours off again', () => {
    expect(fitText('abcdef', 6)).toBe('abcdef')
    expect(fitText('abcdef', 4)).toBe('abc…')
    expect(fitText('日本語', 4)).toBe('日…')
    const cut = fitText(coloured.bad('abcdef'), 4)
    expect(textWidth(cut)).toBe(4)
    expect(cut).toContain(coloured.bad('abc'))
    expect(padText('ab', 4, 'right')).toBe('  ab')
  })

  it('wraps at words', () => {
    expect(wrapText('one two three', 7)).toEqual(['one two', 'three'])
    expect(wrapText('extraordinarily long', 5)).toEqual(['extra', 'ordin', 'arily', 'long'])
    expect(wrapText('这是一个没有空格的句子 end', 8)).toEqual(['这是一个', '没有空格', '的句子', 'end'])
  })
})

describe('bar', () => {
  it.each([0, 0.01, 0.5, 0.999, 1, 7, -1])('has its width at %d', (share) => {
    const { filled, rest } = bar(share, 20)
    expect(filled.length + rest.length).toBe(20)
  })
})

describe('panel', () => {
  it('has lines of exactly its width, for any content', () => {
    const lines = panel({
      sections: [
        { title: 'a very long title that cannot possibly fit into forty columns', lines: ['x'.repeat(100), '日本'] },
        { lines: ['plain'] },
      ],
      note: 'complete',
      columns: 40,
      style: coloured,
    })
    expect(lines.map(textWidth)).toEqual(lines.map(() => 40))
  })
})

describe('columns', () => {
  it('shrinks only the columns marked as shrinkable', () => {
    const lines = textTable({
      columns: [{ title: 'id' }, { title: 'error', shrinks: true }, { title: 'n', align: 'right' }],
      rows: [['0-0', 'a long explanation of what went wrong', '12']],
      width: 24,
      style: plain,
    })
    expect(lines.every((line) => textWidth(line) <= 24)).toBe(true)
    expect(lines[1]).toMatch(/^0-0 {2}a long .*… {2}12$/)
  })

  it('omits optional columns if shrinking is not enough', () => {
    const shown = (width: number) =>
      textTable({
        columns: [
          { title: 'run' },
          { title: 'environment', shrinks: true, isOptional: true },
          { title: 'model', shrinks: true, isOptional: true },
          { title: 'score', align: 'right' },
        ],
        rows: [['a-long-name-of-a-run', 'arithmetic', 'some-model', '1.000']],
        width,
        style: plain,
      })
    expect(shown(80)[1]).toBe('a-long-name-of-a-run  arithmetic   some-model  1.000')
    expect(shown(43)[1]).toBe('a-long-name-of-a-run  arith…  some-…  1.000')
    expect(shown(42)).toEqual(['run                   environment  score', 'a-long-name-of-a-run  arithmetic   1.000'])
    expect(shown(34)[1]).toBe('a-long-name-of-a-run  1.000')
    expect(shown(10)[1]).toBe('a-long-name-of-a-run  1.000')
  })
})

describe('printable', () => {
  it('removes control codes', () => {
    expect(printable('a\u001b[2Jb\u001b]0;title\u0007c\r\nd\te\u0007')).toBe('abc\nd\te�')
    expect(printableLine(' a\n\n b ')).toBe('a b')
  })
})

describe('shellQuote', () => {
  it('quotes characters with a meaning for the shell', () => {
    expect(shellQuote(['eval', './a b.ts', '--env.x="5"', "it's"])).toBe(`eval './a b.ts' '--env.x="5"' 'it'\\''s'`)
  })
})

describe('wantsColor', () => {
  it('follows the terminal, NO_COLOR and FORCE_COLOR', () => {
    expect(wantsColor(true, {})).toBe(true)
    expect(wantsColor(false, {})).toBe(false)
    expect(wantsColor(true, { NO_COLOR: '1' })).toBe(false)
    expect(wantsColor(false, { FORCE_COLOR: '1' })).toBe(true)
    expect(wantsColor(true, { TERM: 'dumb' })).toBe(false)
    expect(plain.bad('x')).toBe('x')
    expect(coloured.bad('x')).not.toBe('x')
  })
})

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

  it.each(['', 'soon', '5 m', '-5s', '5w', '1h30'])('"%s" is not a duration', (text) => {
    expect(parseDurationMs(text)).toBeUndefined()
  })
})
