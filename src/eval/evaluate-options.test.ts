import { describe, expect, test } from 'vitest'
import { z } from 'zod'
import { defineEnvironment } from '../env/index.ts'
import { evaluate } from './evaluate.ts'
import type { EvaluateOptions } from './evaluation.ts'

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
    [{ run: { folder: 'x' } }, '`run.folder` is not known; there are root, name, resume, retryFailed'],
    [{ workers: 1, supervision: { maxAge: 3 } }, '`supervision.maxAge` is not known; did you mean `maxAgeMs`?'],
    [{ retries: -1 }, 'retries must be a whole number of at least 0, not -1'],
    [{ retries: 1.5 }, 'retries must be a whole number of at least 0, not 1.5'],
    [{ retries: Number.NaN }, 'retries must be a whole number of at least 0, not NaN'],
    [{ attempts: 0 }, 'attempts must be a whole number of at least 1, not 0'],
    [{ maxCostUsd: Number.NaN }, 'maxCostUsd must be a number of at least 0, not NaN'],
    [{ maxCostUsd: -1 }, 'maxCostUsd must be a number of at least 0, not -1'],
    [{ maxCostUsd: '5' }, "maxCostUsd must be a number of at least 0, not '5'"],
    [{ seed: 'x' }, "seed must be a whole number, not 'x'"],
    [{ seed: 1.5 }, 'seed must be a whole number, not 1.5'],
    [{ passThreshold: Number.NaN }, 'passThreshold must be a number, not NaN'],
    [{ run: 'nightly' }, "`run` must be an object with fields such as root, name, resume, not 'nightly'"],
    [{ run: { name: 5 } }, '`run.name` must be a text, not 5'],
    [{ run: { retryFailed: 'no' } }, "`run.retryFailed` must be true or false, not 'no'"],
    [{ limits: 5 }, '`limits` must be an object, not 5'],
    [{ options: [] }, '`options` must be an object, not []'],
    [{ sampling: null }, '`sampling` must be an object, not null'],
    [{ signal: 3 }, '`signal` must be an AbortSignal, not 3'],
    [
      { maxCostUsd: 5, models: { third: { backends: [{ url: 'http://third.invalid' }] } } },
      'a cost limit needs prices, and none is known for third; give it one with price in its config',
    ],
    [{ fork: {} }, '`fork` must be what forkRollout() makes, not {}'],
    [{ fork: { turn: 1 } }, '`fork` must be what forkRollout() makes, not { turn: 1 }'],
    [{ preflight: 'no' }, "`preflight` must be true or false, not 'no'"],
    [{ judge: {} }, '`judge` must be a text, not {}'],
    [{ backends: { sim: 5 } }, 'backends.sim must be a list of backends, not 5'],
    [{ model: undefined }, "which model? Give its name, such as 'sim'"],
    [{ model: { simulator: {} } }, "the model's config has no `name`: give it one"],
    [{ run: { resume: 'always' } }, "run.resume must be one of auto, never, required, not 'always'"],
  ])('refuses what it does not know, or what does not fit: %j', async (misspelt: object, problem) => {
    const module = 'workers' in misspelt ? { environment: 'arithmetic' } : { environment }
    // As from JavaScript: the types refuse most of these.
    const options: EvaluateOptions = Object.assign({ model: 'sim', ...module }, misspelt)
    const evaluation = evaluate(options)
    const refusal = expect.objectContaining({ code: 'config_invalid', rawMessage: expect.stringContaining(problem) })
    await expect(evaluation.started).rejects.toEqual(refusal)
  })

  test.each(['./environment.ts', undefined])('refuses what is no object: %s', async (given) => {
    // As from JavaScript.
    const { started } = Reflect.apply(evaluate, undefined, [given]) as ReturnType<typeof evaluate>
    const problem = 'options of evaluate() must be an object with fields such as environment, options, model, not '
    await expect(started).rejects.toMatchObject({
      code: 'config_invalid',
      rawMessage: expect.stringContaining(problem),
    })
  })
})
