import { expect, test } from 'vitest'
import { z } from 'zod'
import type { StandardSchema } from '../schema/index.ts'
import { validate } from './parsed-tool-call.ts'

test('answers at once where the schema does', () => {
  expect(validate(z.object({ size: z.number().default(3) }), {})).toEqual({ value: { size: 3 } })
})

test('names the field and what was expected of it', () => {
  const schema = z.object({ answer: z.object({ value: z.number() }), id: z.string() })
  expect(validate(schema, { answer: { value: '7' }, id: 1 })).toMatchObject({
    problem: 'answer.value: expected number, got string; id: expected string, got number',
  })
})

test('waits for an asynchronous schema', async () => {
  const schema = z.string().refine(async (text) => text === 'yes', 'must be yes')
  expect(await validate(schema, 'yes')).toEqual({ value: 'yes' })
  expect(await validate(schema, 'no')).toMatchObject({ problem: 'must be yes' })
})

test('a schema that throws is a problem of the value', async () => {
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
