import type { Json } from '../schema/index.ts'
import { redact, type Redacted } from '../store/index.ts'
import type { RunConfig } from './resolve-run.ts'

/** What is to be stored or shown, as plain JSON, without the secrets of a configuration. */
export function redacted(value: object, config: RunConfig): Redacted<Record<string, Json>> {
  return redact(JSON.parse(JSON.stringify(value)) as Record<string, Json>, secretsOf(config))
}

/** The values of the keys this run uses, should one have found its way into a header or an option. */
function secretsOf(config: RunConfig): string[] {
  return config.models
    .flatMap((model) => model.backends.map(({ apiKeyEnv }) => process.env[apiKeyEnv]))
    .filter((secret) => secret !== undefined)
}
