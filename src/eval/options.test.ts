import { describe, expect, test } from 'vitest'
import { z } from 'zod'
import { refine } from '../agents/index.ts'
import { defineEnvironment } from '../env/index.ts'
import { evaluate } from './evaluate.ts'
import type { EvaluateOptions } from './options.ts'

const environment = defineEnvironment({
  name: 'plain',
  task: z.object({}),
  tasks: () => [{}],
  prompt: () => 'hello',
  reward: () => 1,
})

describe('evaluate', () => {
  test.each([
    [{ concurency: 3 }, '`concurency` is not known; did you mean `concurrency`?'],
    [{ colour: 3 }, '`colour` is not known; there are environment, options, model'],
    [{ limits: { maxTurn: 3 } }, 'limits do not fit: `maxTurn` is not known; did you mean `maxTurns`?'],
    [{ sampling: { max_tokens: 3 } }, '`max_tokens` is not known; did you mean `maxTokens`?'],
    [{ run: { folder: 'x' } }, 'run: `folder` is not known; there are root, name, resume, retryFailed'],
    [{ workers: 1, supervision: { maxAge: 3 } }, '`supervision.maxAge` is not known; did you mean `maxAgeMs`?'],
    [{ retries: -1 }, 'retries: expected number to be at least 0'],
    [{ retries: 1.5 }, 'retries: expected a whole number'],
    [{ retries: Number.NaN }, 'retries: expected number, got NaN'],
    [{ attempts: 0 }, 'attempts: expected number to be at least 1'],
    [{ maxCostUsd: Number.NaN }, 'maxCostUsd: expected number, got NaN'],
    [{ maxCostUsd: -1 }, 'maxCostUsd: expected number to be at least 0'],
    [{ maxCostUsd: '5' }, 'maxCostUsd: expected number, got string'],
    [{ seed: 'x' }, 'seed: expected number, got string'],
    [{ seed: 1.5 }, 'seed: expected a whole number'],
    [{ passThreshold: Number.NaN }, 'passThreshold: expected number, got NaN'],
    [{ run: 'nightly' }, 'run: expected object, got string'],
    [{ run: { name: 5 } }, 'run.name: expected string, got number'],
    [{ run: { retryFailed: 'no' } }, 'run.retryFailed: expected boolean, got string'],
    [{ limits: 5 }, 'limits: expected object, got number'],
    [{ options: [] }, 'options: expected object, got array'],
    [{ sampling: null }, 'sampling: expected object, got null'],
    [{ signal: 3 }, 'signal: expected AbortSignal, got number'],
    [
      { maxCostUsd: 5, models: { third: { backends: [{ url: 'http://third.invalid' }] } } },
      'a cost limit needs prices, but the price of third is unknown; set it with price in its config',
    ],
    [{ fork: {} }, 'fork: expected the result of forkRollout()'],
    [{ fork: { turn: 1 } }, 'fork: expected the result of forkRollout()'],
    [{ preflight: 'no' }, 'preflight: expected boolean, got string'],
    [{ judge: {} }, 'judge: expected string, got object'],
    [{ backends: { sim: 5 } }, 'backends.sim: expected array, got number'],
    [{ model: undefined }, "which model? Give its name, such as 'sim'"],
    [{ model: { simulator: {} } }, "the model's config has no `name`: set one"],
    [{ agent: { turns: 3 } }, 'an agent is its name, or { name, … } with its options, and this one has no `name`; the'],
    [{ agent: {} }, 'this one has no `name`'],
    [{ agent: { name: 5 } }, 'this one has a `name` that is not a text'],
    [{ agent: 5 }, 'agent: expected the name of an agent, or { name, … }'],
    [{ agent: refine() }, 'agent: expected the name of an agent, or { name, … }, which a run can keep; in code, give'],
    [{ agent: { name: 'refine', agent: refine() } }, 'in code, give it to defineEnvironment'],
    [{ run: { resume: 'always' } }, 'run.resume: expected one of'],
  ])('refuses unknown or invalid options: %j', async (misspelt: object, problem) => {
    const module = 'workers' in misspelt ? { environment: 'arithmetic' } : { environment }
    // As from JavaScript: the types refuse most of these.
    const options: EvaluateOptions = Object.assign({ model: 'sim', ...module }, misspelt)
    const evaluation = evaluate(options)
    const refusal = expect.objectContaining({ code: 'config_invalid', rawMessage: expect.stringContaining(problem) })
    await expect(evaluation.started).rejects.toEqual(refusal)
  })

  test.each(['./environment.ts', undefined])('refuses options that are not an object: %s', async (given) => {
    // As from JavaScript.
    const { started } = Reflect.apply(evaluate, undefined, [given]) as ReturnType<typeof evaluate>
    const problem = 'options of evaluate(): '
    await expect(started).rejects.toMatchObject({
      code: 'config_invalid',
      rawMessage: expect.stringContaining(problem),
    })
  })
})
