import { Redaction } from '../../../src/kit/index.ts'
import type { DialectOptions } from '../../../src/apis/client-side.ts'

/** Of a plain server whose API is at `path`. */
export function dialectOptions(path: string, options: Partial<DialectOptions> = {}): DialectOptions {
  return {
    source: { backend: 'b', url: `http://b/v1/${path}`, model: 'm', apiKeyEnv: 'KEY', redaction: new Redaction([]) },
    modelName: 'm',
    upstreamName: 'm',
    stream: false,
    sendReasoning: true,
    isOpenAi: false,
    ...options,
  }
}
