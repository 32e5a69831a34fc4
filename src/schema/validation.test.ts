import { expect, test } from 'vitest'
import { z } from 'zod'
import { describeIssues, safeParse, type StandardSchema, validate } from './validation.ts'

const schema = z.strictObject({
  name: z.string().min(1),
  count: z.int().min(1).max(5),
  share: z.number().gt(0).lt(1),
  level: z.enum(['low', 'high']),
  either: z.union([z.number(), z.boolean()]),
  table: z.record(z.string(), z.string()),
  own: z.string().refine((text) => text === 'yes', 'say yes'),
  even: z.number().multipleOf(2).optional(),
  code: z.string().startsWith('a').endsWith('z').includes('m').regex(/^\w+$/).optional(),
  mail: z.email().optional(),
})
const right = { name: 'a', count: 1, share: 0.5, level: 'low', either: 1, table: {}, own: 'yes' }

test.each([
  ['what is not there', { name: undefined }, 'name: missing; expected string'],
  ['another type', { name: 3 }, 'name: expected string, got number'],
  ['nothing in place of a table', { table: null }, 'table: expected object, got null'],
  ['a table that is not there', { table: undefined }, 'table: missing; expected object'],
  ['a fraction', { count: 1.5 }, 'count: expected a whole number'],
  ['too little', { count: 0 }, 'count: expected number to be at least 1'],
  ['too much', { count: 6 }, 'count: expected number to be at most 5'],
  ['nothing', { name: '' }, 'name: must not be empty'],
  ['below an open bound', { share: 0 }, 'share: expected number to be more than 0'],
  ['above an open bound', { share: 1 }, 'share: expected number to be less than 1'],
  ['no choice', { level: 'none' }, 'level: expected one of "low"|"high"'],
  ['no alternative', { either: 'x' }, 'either: it matches none of the allowed forms'],
  ['an unknown field', { more: 1 }, 'unknown "more"; leave it out'],
  ['no multiple', { even: 3 }, 'even: must be a multiple of 2'],
  ['a wrong start', { code: 'bmz' }, 'code: must start with "a"'],
  ['a wrong end', { code: 'am' }, 'code: must end with "z"'],
  ['a part that is missing', { code: 'az' }, 'code: must include "m"'],
  ['another pattern', { code: 'a m z' }, 'code: must match pattern /^\\w+$/'],
  ['no address', { mail: 'me' }, 'mail: Invalid email address'],
  ['the words of an author', { own: 'no' }, 'own: say yes'],
])('an issue with %s is described in plain words', (_, wrong, said) => {
  const { error } = safeParse(schema, { ...right, ...wrong })
  expect(describeIssues(error?.issues ?? [])).toBe(said)
})

test.each([
  ['a text that is no number', { age: '$& 5' }, 'age: expected number, got "$& 5"'],
  ['a near choice', { level: 'hihg' }, 'level: expected one of "low"|"high", got "hihg" (did you mean "high"?)'],
  ['no choice at all', { level: 3 }, 'level: expected one of "low"|"high", got number'],
  ['a choice that is missing', { level: undefined }, 'level: missing; expected one of "low"|"high"'],
  ['another name', { message: { text: 'Hi' } }, 'message.content: missing; found "text"'],
  [
    'no alternative',
    { message: { content: { text: 'Hi' } } },
    'message.content: it matches none of the allowed forms, got object',
  ],
])('the description shows the given value: %s', (_, wrong, said) => {
  const given = { age: '36', level: 'low', message: { content: 'Hi' }, ...wrong }
  const person = z.object({
    age: z.coerce.number(),
    level: z.enum(['low', 'high']),
    message: z.object({ content: z.union([z.string(), z.array(z.string())]) }),
  })
  const { error } = safeParse(person, given)
  expect(describeIssues(error?.issues ?? [], given)).toBe(said)
})

test('only the first of many issues are described, with the number of the others', () => {
  const { error } = safeParse(
    z.array(z.number()),
    Array.from({ length: 20 }, () => 'x'),
  )
  expect(describeIssues(error?.issues ?? [])).toMatch(/^\[0\]: expected number, got string; .*\[7\]: .*; and 12 more$/)
})

test('a path is written as in code, with list indices in brackets', () => {
  const { error } = safeParse(z.object({ keys: z.array(z.object({ key: z.string() })) }), { keys: [{ key: 3 }] })
  expect(describeIssues(error?.issues ?? [])).toBe('keys[0].key: expected string, got number')
})

test.each([
  ['synchronous', z.object({ name: z.string() })],
  ['asynchronous', z.object({ name: z.string().refine(async (name) => name !== '') })],
])('the issues of an environment schema use our messages: %s', async (_, own) => {
  expect(await validate(own, { name: 3 })).toMatchObject({
    issues: [{ message: 'expected string, got number' }],
  })
  expect(await validate(own, { name: 'a' })).toEqual({ value: { name: 'a' } })
})

test('a synchronous schema gives a synchronous result', () => {
  expect(validate(z.object({ size: z.number().default(3) }), {})).toEqual({ value: { size: 3 } })
})

test('the problem names the field and the expected type', () => {
  const answered = z.object({ answer: z.object({ value: z.number() }), id: z.string() })
  expect(validate(answered, { answer: { value: '7' }, id: 1 })).toMatchObject({
    problem: 'answer.value: expected number, got string; id: expected string, got number',
  })
})

test('the result waits for an asynchronous schema', async () => {
  const asynchronous = z.string().refine(async (text) => text === 'yes', 'must be yes')
  expect(await validate(asynchronous, 'yes')).toEqual({ value: 'yes' })
  expect(await validate(asynchronous, 'no')).toMatchObject({ problem: 'must be yes' })
})

test('an error thrown by a schema is reported as a problem of the value', async () => {
  const throwing = z.string().transform((): string => {
    throw new Error('no such unit')
  })
  expect(await validate(throwing, 'x')).toMatchObject({ problem: 'no such unit' })
  expect(
    validate(
      handMade(() => JSON.parse('{')),
      'x',
    ),
  ).toMatchObject({ problem: expect.stringContaining('JSON') })
  const rejecting = handMade(() => Promise.reject(new Error('not today')))
  expect(await validate(rejecting, 'x')).toMatchObject({ problem: 'not today' })
})

function handMade(check: StandardSchema['~standard']['validate']): StandardSchema {
  return { '~standard': { version: 1, vendor: 'mine', validate: check } }
}
