/** The owner of a key. A session's key is good for that session alone, an admin's for everything of the tenant. */
export type Caller =
  | { readonly kind: 'admin'; readonly tenant: string }
  | { readonly kind: 'session'; readonly tenant: string; readonly sessionId: string }
