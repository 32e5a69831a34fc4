import { expect, test } from 'vitest'
import type { Message } from '../../../schema/index.ts'
import { createStyle } from '../../terminal/text.ts'
import { messageDiff } from './run-replay.ts'

const style = createStyle(false)
const said = (content: string): Message => ({ role: 'user', content })

test('a message diff shows the changed lines with the lines around them', () => {
  const lines = Array.from({ length: 12 }, (_, line) => `line ${line}`)
  const changed = lines.with(6, 'another line').toSpliced(7, 0, 'and one more')
  const diff = messageDiff(
    { session: '0-0', seq: 3, recorded: said(lines.join('\n')), replayed: said(changed.join('\n')) },
    style,
  )
  expect(diff).toEqual([
    'First difference: message 3 of 0-0 (user)',
    '  line 3',
    '  line 4',
    '  line 5',
    '- line 6',
    '+ another line',
    '+ and one more',
    '  line 7',
    '  line 8',
    '  line 9',
  ])
})

test('a message on one side only is shown with its calls and without control codes', () => {
  const call: Message = {
    role: 'assistant',
    content: '\u001b[2Jhidden',
    tool_calls: [{ id: 'c', type: 'function', function: { name: 'look', arguments: '{}' } }],
  }
  const diff = messageDiff({ session: '0-0', seq: 1, recorded: call, replayed: null }, style)
  expect(diff[0]).toContain('(assistant)')
  expect(diff.slice(1)).toEqual([
    '- role: assistant',
    '- hidden',
    '- tool_calls: [{"id":"c","type":"function","function":{"name":"look","arguments":"{}"}}]',
    '+ (no message)',
  ])
})

test('a message diff is short for messages of any length', () => {
  const [recorded, replayed] = ['a', 'b'].map((letter) =>
    said(Array.from({ length: 9_000 }, () => letter.repeat(900)).join('\n')),
  )
  const diff = messageDiff({ session: '0-0', seq: 0, recorded: recorded ?? null, replayed: replayed ?? null }, style)
  expect(diff.length).toBeLessThan(100)
  expect(diff).toContain('- … 8960 more lines')
  expect(Math.max(...diff.map((line) => line.length))).toBeLessThan(450)
})
