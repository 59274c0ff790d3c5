/** Answers of the API that several pages read; see `/openapi.json`. */
export {};
