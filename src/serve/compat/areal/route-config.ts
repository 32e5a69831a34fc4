import type { ApiRoute } from '../../http/openapi.ts'

const arealDocs = 'https://github.com/areal-project/AReaL'

/** The description of a route whose bodies are AReaL's. */
export function describedAs(summary: string, key: string): { readonly config: { readonly api: ApiRoute } } {
  return { config: { api: { summary, key, vendorDocs: arealDocs } } }
}
