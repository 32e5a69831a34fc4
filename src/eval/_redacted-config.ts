import { backendSecrets } from '../inference/index.ts'
import type { Json } from '../schema/index.ts'
import { redact, type Redacted } from '../store/index.ts'
import type { ResolvedRun } from './resolve-run.ts'

type Keys = Pick<ResolvedRun, 'config' | 'env'>

/** A value to be stored or shown, as plain JSON, without the secrets of a run. */
export function redacted(value: object, keys: Keys): Redacted<Record<string, Json>> {
  return redact(JSON.parse(JSON.stringify(value)) as Record<string, Json>, secretsOf(keys))
}

/** The secrets of the models that this run uses, since one may have got into an option of the environment. */
function secretsOf({ config, env }: Keys): string[] {
  return config.models.flatMap(({ backends }) => backends.flatMap((backend) => backendSecrets(backend, env)))
}
