import { expect, test } from 'vitest'
import { shownDifference } from './report.ts'

const long = 'The beginning is the same in both of them, and goes on for a while. '.repeat(3)

test.each([
  ['short values', { right: 1 }, { right: 0 }, '{"right":1}', '{"right":0}'],
  [
    'a message whose content differs',
    { role: 'tool', tool_call_id: 'call_0', content: '376' },
    { role: 'tool', tool_call_id: 'call_0', content: '377' },
    'content: "376"',
    'content: "377"',
  ],
  [
    'a field deep inside',
    { turn: 1, messages: [{ content: long }, { content: 'a', name: long }] },
    { turn: 1, messages: [{ content: long }, { content: 'b', name: long }] },
    'messages[1].content: "a"',
    'messages[1].content: "b"',
  ],
  ['a field that one has', { kept: long, note: 1 }, { kept: long }, 'note: 1', 'note: –'],
  ['long texts', `${long}One.`, `${long}Two.`, '… while. One."', '… while. Two."'],
  ['a value that one has', undefined, { right: 0 }, null, '{"right":0}'],
  ['other kinds', [long], 1, expect.stringMatching(/^\["The beginning .{103}…$/), '1'],
])('%s', (_what, recorded, replayed, ...shown) => {
  expect(shownDifference(recorded, replayed)).toEqual(shown)
})
