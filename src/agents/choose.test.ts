import { expect, test } from 'vitest'
import { voteOf } from './choose.ts'

test.each([
  ['a later line that only names the answer', 'Answer: 42\nI checked this answer twice.', '42'],
  ['no space behind the colon', 'Answer:7', '7'],
  ['a bold mark', '**Answer:** 7', '7'],
  ['a bold mark before the colon', '- **Final answer**: 7.', '7'],
  ['a mark of its own line', '### Answer:\n\n7\n', '7'],
  ['a sentence', 'It is 6 * 7.\nSo the answer is **1,005.0**.', '1005'],
  ['an answer that is not the one', 'The answer is not clear yet.\nAnswer: 5', '5'],
  ['a word that is longer', "The answer isn't 4.\n5", '5'],
  ['braces within a box', String.raw`Answer: see \boxed{\frac{1}{2}}.`, String.raw`\frac{1}{2}`],
  ['a brace that is a character', String.raw`\boxed{\{1, 2\}} and {more}`, String.raw`\{1, 2\}`],
  ['the second box, where the first is open', String.raw`\boxed{1 and \boxed{2}`, '2'],
  ['a heading before the answer', '#### Check\nAll right.\nAnswer: 42', '42'],
  ['a heading that has the answer', '#### Answer: 42', '42'],
  ['the form of GSM8K', 'Answer: 41, or rather\n#### 42', '42'],
  ['the last of several', '<answer>1</answer> or <answer>\n2\n</answer>', '2'],
  ['a box in a tag', String.raw`<answer>$\boxed{3}$</answer>`, '3'],
  ['the last line where nothing is marked', 'I think so.\nYes.\n', 'yes'],
])('with %s', (_, answer, vote) => {
  expect(voteOf(answer)).toBe(vote)
})

test('reads long texts of marks alone in a moment', () => {
  const startedAt = performance.now()
  for (const mark of ['#', '*', '\n', '<answer>', 'answer:', '\\boxed{', '{', 'answer is\n'])
    voteOf(mark.repeat(50_000))
  expect(performance.now() - startedAt).toBeLessThan(5_000)
})
