import { hash } from 'node:crypto'
import { relative } from 'node:path'
import { fileURLToPath } from 'node:url'
import type { RunConfig } from './run-config.ts'

/** The parts that make two runs the same experiment. Its speed and number of tasks are not among them. */
export function experimentOf(config: RunConfig): Record<string, unknown> {
  const { environment, model, models, judge, attempts, group, limits, sampling, seed, toolFormat, captureTokens } =
    config
  const served = models.map(({ name, upstreamName, backends, simulator, api }) => ({
    name,
    upstreamName,
    urls: backends.map(({ url }) => url),
    simulator,
    api,
  }))
  // A rollout that runs out of these ends without a score: a later sitting may give it more.
  const { wallTimeoutMs: _wallTimeoutMs, tailMs: _tailMs, ...measured } = limits
  const { name, options, specifier } = environment
  // Relative to the working directory, so that a project that was moved is still the same one.
  const module = specifier === null ? null : relative(process.cwd(), fileURLToPath(specifier))
  return {
    environment: { name, module, options },
    model,
    models: served,
    judge,
    attempts,
    group,
    limits: measured,
    sampling,
    seed,
    ...(toolFormat && { toolFormat }),
    captureTokens,
    ...(config.forkedFrom && { forkedFrom: config.forkedFrom }),
  }
}

/** Tells two experiments apart. */
export function experimentDigest(config: RunConfig): string {
  return hash('sha256', JSON.stringify(experimentOf(config))).slice(0, 16)
}
