import type { ServerConfig } from './server-config.ts'
import { sharingOf } from './sharing-of.ts'

/** What a restart that lost state means for a rollout, with the default where the configuration does not say. */
export function onRestartOf(server: string, config: ServerConfig): 'fail' | 'tell' {
  const isRequired = config.required ?? true
  return config.onRestart ?? (isRequired && sharingOf(server, config) !== 'shared' ? 'fail' : 'tell')
}
