import { describe, expect, test } from 'vitest'
import { z } from 'zod'
import type { StandardSchema } from '../../schema/index.ts'
import { defineEnvironment, type Environment } from '../define/define-environment.ts'
import { environmentOf } from './environment-of.ts'

const plain = defineEnvironment({
  name: 'plain',
  task: z.object({}),
  tasks: () => [],
  prompt: () => '',
  reward: () => 1,
})

function withOptions(options: StandardSchema): Environment {
  return { ...plain, options }
}

describe('the options of an environment', () => {
  const schema = z.object({
    size: z.number().int().default(3),
    label: z.string().optional(),
    fast: z.boolean().optional(),
    weights: z.array(z.number()).optional(),
    nested: z.object({ depth: z.number() }).optional(),
  })

  test('get their defaults', () => {
    expect(environmentOf(withOptions(schema), {})).toMatchObject({
      name: 'plain',
      options: { size: 3 },
      specifier: undefined,
    })
  })

  test('are parsed from text only if the schema expects another type', () => {
    const raw = { size: '7', label: '7', fast: 'true', weights: '[1, 2]', nested: { depth: '4' } }
    const { options, rawOptions } = environmentOf(withOptions(schema), raw)
    const expected = { size: 7, label: '7', fast: true, weights: [1, 2], nested: { depth: 4 } }
    expect(options).toEqual(expected)
    expect(rawOptions).toEqual(expected)
  })

  test('are named in the error if they are invalid', () => {
    const attempt = () => environmentOf(withOptions(schema), { size: 'large', fast: '7' })
    expect(attempt).toThrow(
      '[config_invalid] the options of plain do not fit: size: expected number, got string; fast: expected boolean, got number. Set them with --env.<name>=<value> (options).',
    )
    expect(() => environmentOf(withOptions(schema), { size: '1.5' })).toThrow(/size: expected a whole number/)
  })

  test('are refused if their name is unknown', () => {
    expect(() => environmentOf(withOptions(schema), { siez: 3 })).toThrow(
      /plain has no option "siez"; did you mean "size"\? It takes: size, label, fast, weights, nested$/,
    )
    expect(() => environmentOf(plain, { size: 3 })).toThrow(/plain has no option "size": it takes no options/)
    expect(() => environmentOf(withOptions(z.object({})), { size: 3 })).toThrow(
      /no option "size"\. It takes no options/,
    )
    expect(environmentOf(withOptions(z.looseObject({})), { any: 3 }).options).toEqual({ any: 3 })
  })

  test('may have a schema that cannot be described', () => {
    const dated = z.object({ day: z.date().default(new Date(0)) })
    expect(environmentOf(withOptions(dated), {}).options).toEqual({ day: new Date(0) })
  })

  test('must have a synchronous schema', () => {
    const later = z.object({ size: z.string().refine(async () => true) })
    expect(() => environmentOf(withOptions(later), { size: 'x' })).toThrow(/asynchronous schema/)
  })
})

/** As Node runs a module: without its types. */
const toolWith = (more: object) => ({ ...plain, tools: { add: { parameters: z.object({}), run: () => '', ...more } } })

describe('a value that is not an environment', () => {
  test.each([
    [undefined, 'expected the result of defineEnvironment(), not missing'],
    [[], 'not an array'],
    [() => plain, 'not a value of type function'],
    [{ ...plain, name: '' }, '`name` must be a text'],
    [{ ...plain, task: {} }, '`task` must be a schema'],
    [{ ...plain, tasks: [] }, '`tasks` must be a function that returns the tasks, not an array'],
    [{ ...plain, prompt: 'hello' }, '`prompt` must be a function'],
    [{ ...plain, setup: {} }, '`setup` must be a function'],
    [{ ...plain, options: 3 }, '`options` must be a schema'],
    [{ ...plain, groupPolicy: 'drop' }, '`groupPolicy` must be "keep", "replace" or "void", not \'drop\''],
    [{ ...plain, reward: undefined }, '`reward` must be a function, or an object of named functions, not missing'],
    [{ ...plain, reward: {} }, '`reward` must be a function'],
    [{ ...plain, reward: { good: 1 } }, '`reward.good` must be a function, or an object with either'],
    [{ ...plain, reward: { good: { score: () => 1, group: () => [1] } } }, '`reward.good` must be a function, or'],
    [{ ...plain, reward: { good: { score: () => 1, weight: '1' } } }, '`reward.good.weight` must be a number'],
    [{ ...plain, tools: [] }, '`tools` must be an object of named tools, not an array'],
    [{ ...plain, tools: { add: {} } }, '`tools.add.parameters` must be a schema'],
    [{ ...plain, tools: { add: { parameters: z.string(), run: () => '' } } }, 'tool "add" must be an object'],
    [{ ...plain, setUp: () => 1 }, '`setUp` is not known; did you mean `setup`?'],
    [{ ...plain, limits: { maxTurn: 3 } }, '`limits` does not fit: `maxTurn` is not known; did you mean `maxTurns`?'],
    [{ ...plain, sampling: { temprature: 0 } }, '`temprature` is not known; did you mean `temperature`?'],
    [{ ...plain, sampling: { topP: 3 } }, '`sampling` does not fit: topP: '],
    [
      { ...plain, reward: { good: { score: () => 1, wieght: 2 } } },
      '`reward.good.wieght` is not known; did you mean `weight`?',
    ],
    [
      { ...plain, tools: { add: { parameters: z.object({}), run: () => '', timeoutMS: 5 } } },
      '`tools.add.timeoutMS` is not known; did you mean `timeoutMs`?',
    ],
    [toolWith({ resume: 're-run' }), '`tools.add.resume` must be "rerun", "reuse" or "restart"'],
    [toolWith({ timeoutMs: 0 }), '`tools.add.timeoutMs` must be a number above 0'],
    [toolWith({ timeoutMs: '5s' }), '`tools.add.timeoutMs` must be a number above 0'],
    [toolWith({ exclusive: 'yes' }), '`tools.add.exclusive` must be true or false'],
    [toolWith({ description: 3 }), '`tools.add.description` must be a text'],
    [{ ...plain, toolOutput: { maxChars: 2_000, spil: true } }, '`toolOutput` must have `maxChars`'],
  ])('is refused: %#', (value, problem) => {
    expect(() => environmentOf(value, {})).toThrow(/^\[env_invalid\] the given value is not an environment: /)
    expect(() => environmentOf(value, {})).toThrow(problem)
  })
})
